//! The terminal UI. [`app`] is what it knows and how that changes, [`view`] what is seen of it; both are pure. Threads beside it read the
//! capture once ([`loader`]) and again where somebody looks ([`replay`]); the verb `tui` in `crate::commands` has the terminal.
//!
//! | view | file |
//! | --- | --- |
//! | overview, frames, I/O, credits, sequence, memory, findings, statistics | one each, opening with its drawing |
//! | prompts, completion, copying, searching | [`prompt`] |
//! | keys, colours, configuration, the terminal taken and given back | [`keys`], [`theme`], [`config`], [`terminal`] |
//! | what the loader makes ready for the screen | [`index`], [`exchanges`], [`digest`], [`credits_log`] |
//! | the order of rows, made beside | [`sort`] for frames, [`order`] for I/O and memory |

pub(crate) mod app;
pub(crate) mod config;
mod credits;
mod credits_log;
mod digest;
mod draw;
mod exchanges;
mod findings;
mod frames;
pub(crate) mod index;
mod io;
pub(crate) mod keys;
pub(crate) mod loader;
mod memory;
pub(crate) mod order;
mod overview;
mod prompt;
pub(crate) mod replay;
mod sequence;
pub(crate) mod sort;
mod statistics;
pub(crate) mod terminal;
pub(crate) mod theme;
pub(crate) mod time;
pub(crate) mod view;

#[cfg(test)]
mod tests;
