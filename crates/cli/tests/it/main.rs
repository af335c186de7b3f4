//! Tests of the built command, in one program so that it links once.

mod clean;
mod colours;
mod common;
mod copies;
mod doctor;
mod forecast;
mod generated;
mod loss;
mod mistakes;
mod predict;
mod refusals;
mod route;
mod settings;
mod sim;
mod stores;
mod web;
mod web_versions;
