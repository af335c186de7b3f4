//! Sockets that speak the wire of the stock UDT library, version 4.
