//! The terminal UI of `rdmascope`. `model` is its data, `app` changes it, `view` draws it; all three are pure. Threads
//! read the capture once (`loader`) and again on demand (`redissect`); [`run()`] handles the terminal.
//!
//! ```text
//!   key, click, news ─▶ app ─▶ the view that is shown (a row of `views`, a file with its `Screen`)
//!                        │ ◀── requests
//!                        ▼
//!                      model ──▶ views draw from it and change nothing in it
//! ```
//!
//! | part | file |
//! | --- | --- |
//! | the views: overview, frames, I/O, credits, sequence, memory, findings and so on | a file each, which begins with a drawing |
//! | definition of a view; the list of views; their states | `screen`; `views`; `states` |
//! | prompts and completion; searching; the keys of popups | `prompt`; `search`; `app/popup` |
//! | keys, colors, configuration, taking and restoring the terminal | `keys`, `theme`, `config`, `terminal` |
//! | data that the loader prepares for the screen | `index`, `exchanges`, `digest`, `credits_log` |
//! | the index of a capture that is kept on disk | `cache` |
//! | the order of rows, made by a thread of its own | `sort` for frames, `order` for I/O and memory |
#![forbid(unsafe_code)]

mod app;
mod cache;
mod config;
mod content;
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
mod model;
mod order;
mod overview;
mod prompt;
mod redissect;
mod run;
mod screen;
mod search;
mod sequence;
mod sessions;
mod sort;
mod states;
mod statistics;
mod system;
mod tabs;
mod terminal;
mod theme;
mod time;
mod view;
mod views;

pub use config::{CONFIGURATION, ForReports, for_reports};
pub use keys::{KeyHelp, keys};
pub use run::{From, Setup, run};

#[cfg(test)]
mod tests;
