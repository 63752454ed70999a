//! The terminal UI. [`app`] is what it knows and how that changes, [`view`] what is seen of it; both are pure. Threads beside it read the
//! capture once ([`loader`]) and again where somebody looks ([`replay`]); the verb `tui` in `crate::commands` has the terminal.
//!
//! | view | file |
//! | --- | --- |
//! | overview, frames, I/O, credits, sequence, memory, findings, statistics | one each, opening with its drawing |
//! | prompts, completion, copying, searching | [`prompt`] |
//! | keys, colours, configuration | [`keys`], [`theme`], [`config`] |

pub(crate) mod app;
pub(crate) mod config;
mod credits;
mod credits_log;
mod draw;
mod findings;
mod frames;
pub(crate) mod index;
mod io;
pub(crate) mod keys;
pub(crate) mod loader;
mod memory;
mod overview;
mod prompt;
pub(crate) mod replay;
mod sequence;
mod statistics;
pub(crate) mod theme;
mod time;
pub(crate) mod view;

#[cfg(test)]
mod tests;
