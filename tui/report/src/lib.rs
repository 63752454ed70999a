//! The output of the command `rdmascope` for captures: the analyzer's loop, reports, and the formats in which `dissect`
//! writes frames.
//!
//! | module | what |
//! | --- | --- |
//! | [`input`], [`analysis`] | captures opened and analysed, by several threads |
//! | [`ahead`] | frames decoded by other threads for the one that follows connections |
//! | [`shards`], [`texts`], [`sheets`] | a file handed out to workers by connection; frames that they dissect, written in order |
//! | [`pool`] | jobs done by several threads, with results in order |
//! | [`report`] | the analysis as text, JSON and HTML |
//! | [`dissection`], [`output`] | frames as lines, trees, JSON, PDML and chosen fields |
//! | [`known_bugs`] | known bugs of implementations, as a file |
//! | [`live`] | what commands share about live captures |
//! | [`fields`], [`stdout`], [`zone`], [`streams`] | names of fields and filters, standard output, local time, numbers of streams |
#![forbid(unsafe_code)]

pub mod ahead;
pub mod analysis;
pub mod dissection;
pub mod fields;
#[cfg(test)]
mod handover;
pub mod input;
pub mod known_bugs;
pub mod live;
pub mod output;
pub mod pool;
pub mod report;
pub mod shards;
pub mod sheets;
pub mod stdout;
pub mod streams;
mod sync;
mod system;
pub mod texts;
pub mod zone;
