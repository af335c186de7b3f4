//! The history of transfers: one row per transfer, in SQLite in the state directory, or in
//! PostgreSQL if a URL is configured.
//!
//! [`Row`] describes one transfer, [`Place`] where rows are kept. [`Store`] stores, finds and
//! removes rows. Both databases use the same statements: columns contain only whole numbers,
//! floating point numbers and text, and only `db` distinguishes the databases. The crate reads no
//! clock; callers pass the time.

mod access;
mod column;
mod db;
mod error;
mod place;
mod postgres;
mod row;
mod schema;
mod sqlite;
mod store;
mod tls;
mod value;

pub use error::HistoryError;
pub use place::{Place, PlaceError};
pub use row::{
    Ended, Kind, Point, Role, Row, Side, StreamSample, TransportBytes, column_names, values,
};
pub use store::{Filter, Retention, Store};
pub use value::Value;
