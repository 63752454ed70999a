//! Findings of a capture, a line each: `cargo run --example findings -- FILE`. The capture is read by
//! rdmascope-capture; frames from anywhere else will do.

use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_capture::{OpenOptions, Source, open};
use rdmascope_dissector::trace::Off;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sample =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../samples/smb-roce-negotiate-refused/smb-roce-negotiate-refused.pcap");
    let mut capture = open(std::env::args_os().nth(1).unwrap_or_else(|| sample.into()), OpenOptions::new())?;
    let mut pipeline = Pipeline::new(Options::default());
    let mut number = 0;
    while let Some(record) = capture.next()? {
        number += 1;
        let meta = FrameMeta {
            number,
            time_ns: record.time_ns,
            link_type: record.link_type,
            wire_len: record.wire_len,
            interface: record.interface,
        };
        pipeline.frame(&meta, record.bytes, &mut Off);
    }
    let (report, _) = pipeline.finish();
    for finding in report.findings.ranked() {
        println!(
            "{:5} {} frame {}: {}",
            finding.severity.name(),
            finding.rule.id(),
            finding.frame,
            report.sentence(finding)
        );
    }
    println!("{number} frames, {} connections", report.connections.len());
    Ok(())
}
