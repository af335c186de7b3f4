//! The links of `packtrain-link` in real time, between network namespaces.
