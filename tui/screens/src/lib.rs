//! The terminal UI of `rdmascope`. `app` is what it knows and how that changes, `view` what is seen of it; both are pure. Threads beside it
//! read the
//! capture once (`loader`) and again where somebody looks (`replay`); [`run()`] has the terminal.
//!
//! | view | file |
//! | --- | --- |
//! | overview, frames, I/O, credits, sequence, memory, findings, statistics, latency, sessions, hosts | one each, opening with its drawing; `screen` says what a view is |
//! | prompts, completion, copying, searching | `prompt` |
//! | keys, colours, configuration, the terminal taken and given back | `keys`, `theme`, `config`, `terminal` |
//! | what the loader makes ready for the screen | `index`, `exchanges`, `digest`, `credits_log` |
//! | the order of rows, made beside | `sort` for frames, `order` for I/O and memory |
#![forbid(unsafe_code)]

mod app;
mod config;
mod credits;
mod credits_log;
mod digest;
mod draw;
mod exchanges;
mod findings;
mod frames;
mod hosts;
mod index;
mod io;
mod keys;
mod latency;
mod loader;
mod memory;
mod order;
mod overview;
mod prompt;
mod replay;
mod run;
mod screen;
mod search;
mod sequence;
mod sessions;
mod sort;
mod statistics;
mod terminal;
mod theme;
mod time;
mod view;
mod views;

pub use config::CONFIGURATION;
pub use keys::{KeyHelp, keys};
pub use run::{From, Setup, run};

#[cfg(test)]
mod tests;
