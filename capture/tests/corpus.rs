//! Every capture of the shared corpus, where it is there: opens to its end, with as many frames as its table says.
//!
//! It is looked for in `../shared/corpus` beside the project, or where `RDMASCOPE_CORPUS` says. Without it nothing is tested here; what every
//! format needs is tested with samples made in code.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rdmascope_capture::{LinkType, OpenOptions, Source, open};

fn corpus() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus");
    let path = std::env::var_os("RDMASCOPE_CORPUS").map_or(beside, PathBuf::from);
    path.join("README.md").is_file().then_some(path)
}

/// Frames by file name, from the table `| file | frames | …`; a row may name several files and as many counts.
fn table(text: &str) -> HashMap<String, u64> {
    let mut counts = HashMap::new();
    for row in text.lines().filter(|l| l.starts_with('|')) {
        let mut cells = row.split('|').skip(1).map(str::trim);
        let (Some(files), Some(frames)) = (cells.next(), cells.next()) else { continue };
        for (file, frames) in files.split(", ").zip(frames.split(", ")) {
            if let Ok(frames) = frames.parse() {
                counts.insert(file.to_owned(), frames);
            }
        }
    }
    counts
}

fn captures(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            captures(&path, found);
        } else if path.extension().is_some_and(|e| e == "pcap" || e == "pcapng") {
            found.push(path);
        }
    }
}

#[test]
fn every_capture_opens_and_has_the_frames_of_the_table() {
    let Some(corpus) = corpus() else {
        eprintln!("NOT TESTED: there is no corpus beside the project, and RDMASCOPE_CORPUS names none");
        return;
    };
    let counts = table(&std::fs::read_to_string(corpus.join("README.md")).unwrap());
    assert!(counts.len() >= 10, "the table of the corpus was not understood");

    let mut files = Vec::new();
    captures(&corpus, &mut files);
    let mut checked = 0;
    for path in files {
        let frames = [true, false].map(|mmap| {
            let mut capture = open(&path, OpenOptions::new().mmap(mmap)).unwrap();
            let mut frames = 0u64;
            while let Some(record) = capture.next().unwrap() {
                assert!(!record.bytes.is_empty() && record.bytes.len() <= record.wire_len as usize, "{}", path.display());
                assert_ne!(record.link_type.name(), LinkType(0xffff).name(), "{}", path.display());
                frames += 1;
            }
            frames
        });
        assert_eq!(frames[0], frames[1], "mapped and read: {}", path.display());
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if let Some(expected) = counts.get(&name) {
            assert_eq!(frames[0], *expected, "{name}");
            checked += 1;
        }
    }
    assert_eq!(checked, counts.len(), "every file of the table is there");
}
