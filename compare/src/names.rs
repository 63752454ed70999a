//! Names of captures that are compared: as much of each path as makes them differ.

use std::path::{Component, Path, PathBuf};

/// The file name of each path; of those that are alike, the folders before it, too, as far as they are needed.
pub fn names(paths: &[PathBuf]) -> Vec<String> {
    let mut parts = vec![1_usize; paths.len()];
    loop {
        let named: Vec<String> = paths.iter().zip(&parts).map(|(path, parts)| last(path, *parts)).collect();
        let is_alike = |at: usize| named.iter().enumerate().any(|(other, name)| other != at && *name == named[at]);
        let longer: Vec<usize> =
            (0..paths.len()).filter(|at| is_alike(*at) && parts[*at] < paths[*at].components().count()).collect();
        if longer.is_empty() {
            return named;
        }
        longer.into_iter().for_each(|at| parts[at] += 1);
    }
}

/// The last components of a path; the whole path if it has no more.
fn last(path: &Path, parts: usize) -> String {
    let all: Vec<Component<'_>> = path.components().collect();
    all[all.len().saturating_sub(parts)..].iter().collect::<PathBuf>().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_where_the_paths_do() {
        for (paths, expected) in [
            (vec!["/a/client.pcap", "server.pcap"], vec!["client.pcap", "server.pcap"]),
            (vec!["A/trace.pcap", "B/trace.pcap"], vec!["A/trace.pcap", "B/trace.pcap"]),
            (vec!["/x/A/in/trace.pcap", "/x/B/in/trace.pcap"], vec!["A/in/trace.pcap", "B/in/trace.pcap"]),
            (vec!["A/trace.pcap", "B/trace.pcap", "/c/other.pcap"], vec!["A/trace.pcap", "B/trace.pcap", "other.pcap"]),
            (vec!["trace.pcap", "B/trace.pcap"], vec!["trace.pcap", "B/trace.pcap"]),
            // the same file twice
            (vec!["A/trace.pcap", "A/trace.pcap"], vec!["A/trace.pcap", "A/trace.pcap"]),
            (vec!["-", "trace.pcap"], vec!["-", "trace.pcap"]),
        ] {
            let paths: Vec<PathBuf> = paths.into_iter().map(PathBuf::from).collect();
            assert_eq!(names(&paths), expected);
        }
    }
}
