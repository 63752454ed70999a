//! Counters of RDMA devices during a capture, to compare them with the captured frames over time. Bounded.
//!
//! ```text
//!   /sys/class/infiniband ─▶ Counter ─▶ Hardware::sample ─▶ points over time, thinned out when there are too many
//!                                              ▲
//!   pcapng, Interface Statistics Block: comment "hw_counters mlx5_0/1 out_of_sequence=17 np_cnp_sent=3"
//! ```
//! A file has such a comment for every port when it begins, and later for changed values.

use std::fmt::{self, Write as _};

/// Maximum number of samples; beyond it, every other one is removed.
const SAMPLES_MAX: usize = 1024;
/// Maximum number of counters.
const COUNTERS_MAX: usize = 1024;
/// Maximum length of a name read from a file, in bytes; the kernel's are shorter.
const NAME_MAX: usize = 64;
/// Prefix of the comment.
const MARK: &str = "hw_counters ";

/// A counter of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// `mlx5_0`.
    pub device: String,
    /// Port number, from 1.
    pub port: u32,
    /// `out_of_sequence`, as the driver calls it.
    pub name: String,
    /// Since the driver was loaded.
    pub value: u64,
}

impl fmt::Display for Counter {
    /// `mlx5_0/1 out_of_sequence`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} {}", self.device, self.port, self.name)
    }
}

impl Counter {
    /// True if both are the same counter, regardless of their values.
    pub fn is_same(&self, other: &Counter) -> bool {
        (self.port, &self.device, &self.name) == (other.port, &other.device, &other.name)
    }
}

/// A counter over time.
#[derive(Clone, Debug)]
pub struct Row {
    /// The counter, with its last value.
    pub counter: Counter,
    first: u64,
    values: Vec<u64>,
}

impl Row {
    /// Increase from the first sample to the last; 0 if the counter was reset.
    pub fn increase(&self) -> u64 {
        self.counter.value.saturating_sub(self.first)
    }
}

/// Counters over time: all of them have values at the same times.
#[derive(Clone, Debug, Default)]
pub struct Hardware {
    times: Vec<i64>,
    rows: Vec<Row>,
    /// One of this number of samples is kept.
    every: u32,
    /// Samples since the last that was kept.
    skipped: u32,
    last_ns: i64,
}

impl Hardware {
    /// Takes values read at a time, in ns since 1970. Counters that are not among them keep their value.
    pub fn sample(&mut self, time_ns: i64, counters: &[Counter]) {
        let mut hint = 0;
        for counter in counters {
            // counters come in the same order each time
            let place = match self.rows.get(hint).is_some_and(|row| row.counter.is_same(counter)) {
                true => Some(hint),
                false => self.rows.iter().position(|row| row.counter.is_same(counter)),
            };
            match place {
                Some(place) => {
                    self.rows[place].counter.value = counter.value;
                    hint = place + 1;
                }
                None if self.rows.len() < COUNTERS_MAX => {
                    self.rows.push(Row {
                        counter: counter.clone(),
                        first: counter.value,
                        values: vec![counter.value; self.times.len()],
                    });
                    hint = self.rows.len();
                }
                None => {}
            }
        }
        if self.rows.is_empty() {
            return;
        }
        self.last_ns = time_ns;
        self.skipped += 1;
        if self.skipped < self.every {
            return;
        }
        self.skipped = 0;
        if self.times.len() == SAMPLES_MAX {
            self.every = self.every.max(1) * 2;
            thin(&mut self.times);
            for row in &mut self.rows {
                thin(&mut row.values);
            }
        }
        self.times.push(time_ns);
        for row in &mut self.rows {
            row.values.push(row.counter.value);
        }
    }

    /// Takes another's samples in, as of another input.
    pub(crate) fn add(&mut self, other: &Hardware, from: usize) {
        for at in from..other.times.len() {
            let counters: Vec<Counter> = other
                .rows
                .iter()
                .map(|row| Counter { value: row.values.get(at).copied().unwrap_or(row.first), ..row.counter.clone() })
                .collect();
            self.sample(other.times[at], &counters);
        }
    }

    /// True if a counter's last sample had this value.
    pub fn has(&self, counter: &Counter) -> bool {
        self.rows.iter().any(|row| row.counter == *counter)
    }

    /// The last value of each.
    pub fn last(&self) -> Vec<Counter> {
        self.rows.iter().map(|row| row.counter.clone()).collect()
    }

    /// Number of samples that are kept.
    pub fn samples(&self) -> usize {
        self.times.len()
    }

    /// True if there are any counters.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Counters that grew, those that grew most first.
    pub fn grown(&self) -> Vec<&Row> {
        let mut grown: Vec<&Row> = self.rows.iter().filter(|row| row.increase() > 0).collect();
        grown.sort_by_key(|row| std::cmp::Reverse(row.increase()));
        grown
    }

    /// By how much a counter grew up to each time (ns since 1970), since the time before.
    pub fn steps<'h>(&'h self, row: &'h Row) -> impl Iterator<Item = (i64, u64)> + 'h {
        let end = (self.times.last() != Some(&self.last_ns)).then_some((self.last_ns, row.counter.value));
        let mut before = row.first;
        self.times.iter().copied().zip(row.values.iter().copied()).chain(end).map(move |(time, value)| {
            let step = value.saturating_sub(before);
            before = value;
            (time, step)
        })
    }
}

fn thin<T: Copy>(of: &mut Vec<T>) {
    let kept: Vec<T> = of.iter().copied().step_by(2).collect();
    *of = kept;
}

/// True if these can be a name of the kernel's; nothing else is read from a file, or shown.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= NAME_MAX
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

/// The comments that carry counters in a file, one for each port.
pub fn comments(counters: &[Counter]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut of: Option<&Counter> = None;
    for counter in counters {
        if !is_name(&counter.device) || !is_name(&counter.name) {
            continue;
        }
        let same_port = of.is_some_and(|o| (&o.device, o.port) == (&counter.device, counter.port));
        // an option holds 65,535 bytes
        if !same_port || all.last().is_none_or(|line| line.len() > 60_000) {
            all.push(format!("{MARK}{}/{}", counter.device, counter.port));
            of = Some(counter);
        }
        if let Some(line) = all.last_mut() {
            let _ = write!(line, " {}={}", counter.name, counter.value);
        }
    }
    all
}

/// The counters in a comment; none if it is another kind of comment.
pub(crate) fn parse(comment: &[u8]) -> Vec<Counter> {
    let Some(rest) = std::str::from_utf8(comment).ok().and_then(|c| c.strip_prefix(MARK)) else { return Vec::new() };
    let mut words = rest.split(' ');
    let Some((device, port)) = words.next().and_then(|w| w.split_once('/')) else { return Vec::new() };
    let Ok(port) = port.parse() else { return Vec::new() };
    if !is_name(device) {
        return Vec::new();
    }
    words
        .take(COUNTERS_MAX)
        .filter_map(|word| {
            let (name, value) = word.split_once('=').filter(|(name, _)| is_name(name))?;
            Some(Counter { device: device.to_owned(), port, name: name.to_owned(), value: value.parse().ok()? })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counter(device: &str, name: &str, value: u64) -> Counter {
        Counter { device: device.to_owned(), port: 1, name: name.to_owned(), value }
    }

    #[test]
    fn counters_grow_from_their_first_sample() {
        let mut hardware = Hardware::default();
        hardware.sample(10, &[counter("a", "x", 100), counter("a", "y", 5)]);
        hardware.sample(20, &[counter("a", "y", 6)]);
        hardware.sample(30, &[counter("a", "x", 130), counter("b", "z", 7)]);
        let grown: Vec<_> = hardware.grown().iter().map(|row| (row.counter.name.as_str(), row.increase())).collect();
        assert_eq!(grown, [("x", 30), ("y", 1)]);
        assert_eq!(hardware.steps(hardware.grown()[0]).collect::<Vec<_>>(), [(10, 0), (20, 0), (30, 30)]);
        assert_eq!(hardware.steps(hardware.grown()[1]).collect::<Vec<_>>(), [(10, 0), (20, 1), (30, 0)]);
    }

    #[test]
    fn days_of_samples_stay_few_and_lose_no_increase() {
        let mut hardware = Hardware::default();
        for n in 0..100_000u64 {
            hardware.sample(n as i64, &[counter("a", "x", n * 2)]);
        }
        assert!(
            hardware.times.len() <= SAMPLES_MAX && hardware.times.len() > SAMPLES_MAX / 4,
            "{}",
            hardware.times.len()
        );
        let row = hardware.grown()[0];
        assert_eq!(row.increase(), 99_999 * 2);
        assert_eq!(hardware.steps(row).map(|(_, step)| step).sum::<u64>(), row.increase());
    }

    #[test]
    fn comments_carry_counters() {
        let counters = [
            counter("mlx5_0", "out_of_sequence", 17),
            counter("mlx5_0", "np_cnp_sent", 3),
            counter("mlx5_1", "rnr", u64::MAX),
        ];
        let comments = comments(&counters);
        assert_eq!(
            comments,
            ["hw_counters mlx5_0/1 out_of_sequence=17 np_cnp_sent=3", "hw_counters mlx5_1/1 rnr=18446744073709551615"]
        );
        let back: Vec<Counter> = comments.iter().flat_map(|c| parse(c.as_bytes())).collect();
        assert_eq!(back, counters);
        assert_eq!(parse(b"a remark of somebody"), []);
        assert_eq!(parse(b"hw_counters mlx5_0 a=1"), []);
        assert_eq!(parse(b"hw_counters mlx5_0/1 a\x1b[2J=1 =2 b=x"), []);
    }

    proptest! {
        #[test]
        fn any_comment_is_read_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..64), mark: bool) {
            let comment = if mark { [MARK.as_bytes(), &bytes].concat() } else { bytes };
            let mut hardware = Hardware::default();
            hardware.sample(1, &parse(&comment));
            prop_assert!(hardware.samples() <= 1);
        }
    }
}
