//! A capture written again as pcapng, with the results of the analysis as packet comments: stock Wireshark lists them
//! among its expert information and in the packet's detail. Frames, times, interfaces, comments and decryption secrets
//! are kept.
//!
//! Findings are added to all of their frames, up to
//! [`Frames::CAPACITY`](rdmascope_analyzer::finding::Frames::CAPACITY), and say so if there are more. Exchanges are
//! added to their request and to their reply.

use rdmascope_analyzer::exchange::{Exchange, Family, Status, escaped};
use rdmascope_analyzer::report::{Report, Sink};
use rdmascope_analyzer::smbd::link::Milliseconds;
use rdmascope_capture::{PcapngWriter, Source};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;

/// Collects the exchanges of an analysis.
#[derive(Clone, Debug, Default)]
pub struct Collector {
    rows: Vec<Exchange>,
}

impl Sink for Collector {
    fn exchange(&mut self, exchange: &Exchange) {
        self.rows.push(exchange.clone());
    }
}

/// Comments by frame number, counted from 1.
#[derive(Clone, Debug, Default)]
pub struct Comments {
    by_frame: BTreeMap<u64, Vec<String>>,
}

impl Comments {
    /// Makes the comments from a report and the exchanges of the same analysis.
    pub fn new(report: &Report, collector: &Collector) -> Self {
        let mut comments = Self::default();
        for finding in report.findings.ranked() {
            let row = finding.rule.row();
            let mut text = format!("rdmascope {} {}: {}", finding.severity.name(), finding.rule.id(), row.title);
            let _ = write!(text, " {} {} ({}).", report.sentence(finding), row.spec, finding.certainty.name());
            if finding.count > 1 {
                let _ = write!(text, " Seen {} times.", finding.count);
            }
            if finding.frames.omitted() > 0 {
                let _ = write!(text, " Only the first {} frames have this comment.", finding.frames.len());
            }
            for frame in finding.frames.iter() {
                comments.add(*frame, text.clone());
            }
        }
        for exchange in &collector.rows {
            comments.add(exchange.request.frame, format!("rdmascope: exchange {}: {}", exchange.id, request(exchange)));
            if let Some(reply) = exchange.reply_end {
                comments.add(reply.frame, format!("rdmascope: exchange {}: {}", exchange.id, reply_text(exchange)));
            }
        }
        comments
    }

    /// Comments on a frame.
    pub fn of(&self, frame: u64) -> &[String] {
        self.by_frame.get(&frame).map_or(&[], Vec::as_slice)
    }

    /// Number of frames that get a comment.
    pub fn frames(&self) -> usize {
        self.by_frame.len()
    }

    fn add(&mut self, frame: u64, text: String) {
        let texts = self.by_frame.entry(frame).or_default();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
}

fn request(exchange: &Exchange) -> String {
    let mut text = exchange.command.to_owned();
    if let Some(file) = exchange.file.as_deref().filter(|f| !f.is_empty()) {
        let _ = write!(text, " {}", escaped(file));
    }
    if let Some(length) = exchange.length {
        let _ = write!(text, " {length} bytes at {}", exchange.offset.unwrap_or(0));
    }
    match exchange.reply_end {
        Some(reply) => {
            let _ = write!(text, ", answered in frame {}", reply.frame);
        }
        None => text.push_str(", not answered in this capture"),
    }
    text
}

fn reply_text(exchange: &Exchange) -> String {
    let mut text = format!("{} of frame {}", exchange.command, exchange.request.frame);
    match (exchange.family, exchange.status) {
        (Family::Rpc, Some(0)) | (_, None) => {}
        (family, Some(status)) => {
            let _ = write!(text, ", {}", Status(family, status));
        }
    }
    if exchange.bytes_moved > 0 {
        let _ = write!(text, ", {} bytes", exchange.bytes_moved);
    }
    for (name, moved) in [("RDMA Read", &exchange.reads), ("RDMA Write", &exchange.writes)] {
        if moved.frames > 0 {
            let _ = write!(
                text,
                ", {name} of {} bytes in frames {} to {}",
                moved.bytes, moved.first.frame, moved.last.frame
            );
        }
    }
    if let Some(latency) = exchange.latency() {
        let split = exchange.split();
        let _ = write!(
            text,
            ", after {} (server {}, RDMA {})",
            Milliseconds(latency),
            Milliseconds(split.server),
            Milliseconds(split.rdma)
        );
    }
    text
}

/// Writes the frames of `source` with their own comments and these, up to where it is damaged. Returns the number of
/// frames and the output. The damage itself is not reported: the first reader of the capture has done that.
///
/// # Errors
/// The new capture cannot be written.
pub fn write<S: Source, W: Write>(
    source: &mut S,
    comments: &Comments,
    mut writer: PcapngWriter<W>,
) -> rdmascope_capture::Result<(u64, W)> {
    let mut revision = None;
    let mut frames = 0;
    while matches!(source.advance(), Ok(true)) {
        if revision != Some(source.metadata().revision) {
            revision = Some(source.metadata().revision);
            writer.catch_up(source.metadata())?;
        }
        frames += 1;
        let texts: Vec<&str> = comments.of(frames).iter().map(String::as_str).collect();
        writer.write_with_comments(&source.record(), &texts)?;
    }
    Ok((frames, writer.finish()?))
}
