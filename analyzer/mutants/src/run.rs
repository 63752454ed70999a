//! Runs each mutant against the tests that reach it.

use crate::Asked;
use crate::places::Kind;
use crate::scratch::{Mutant, Scratch};
use crate::tests::{Ended, Tests};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Mutants that no test can catch: their names, each followed by an indented reason.
const EQUIVALENT: &str = include_str!("../equivalent.txt");

/// Time of the tests of the first group for a mutant; each further group may take four times longer.
const FIRST: Duration = Duration::from_millis(40);

/// Result of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// A test fails.
    Caught,
    /// A test does not end.
    Late,
    /// All tests pass, but the simulator prints another table.
    Seen,
    Survived,
    /// No test comes to it.
    Unreached,
}

impl Outcome {
    const ALL: [Self; 5] = [Self::Caught, Self::Late, Self::Seen, Self::Survived, Self::Unreached];

    fn name(self) -> &'static str {
        match self {
            Self::Caught => "caught",
            Self::Late => "timeout",
            Self::Seen => "seen",
            Self::Survived => "survived",
            Self::Unreached => "unreached",
        }
    }

    fn is_caught(self) -> bool {
        matches!(self, Self::Caught | Self::Late)
    }
}

fn equivalent() -> HashMap<&'static str, &'static str> {
    let mut out = HashMap::new();
    let mut name = None;
    for line in EQUIVALENT.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        match line.strip_prefix("    ") {
            Some(reason) => {
                if let Some(name) = name {
                    out.insert(name, reason);
                }
            }
            None => name = Some(line),
        }
    }
    out
}

/// Results so far: a line each, with outcome, what caught it, and name. The last line of a name counts.
fn results(path: &Path) -> HashMap<String, (Outcome, String)> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let rows = text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, '\t');
        let (outcome, by, name) = (parts.next()?, parts.next()?, parts.next()?);
        let outcome = Outcome::ALL.into_iter().find(|o| o.name() == outcome)?;
        Some((name.to_string(), (outcome, by.to_string())))
    });
    rows.collect()
}

/// Runs the mutants that have no result yet, and prints the table.
pub fn run(scratch: &Scratch, asked: &Asked) -> Result<(), String> {
    let path = asked.folder.join("results.tsv");
    let mut known = results(&path);
    if !asked.table {
        let file = fs::File::options().create(true).append(true).open(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut tests = Tests::new(scratch, &asked.folder, asked.seeds)?;
        tests.all.retain(|test| test.time.as_secs_f64() <= asked.slowest);
        let whole: f64 = tests.all.iter().map(|t| t.time.as_secs_f64()).sum();
        eprintln!("{} mutants, {} tests of {whole:.1} s", scratch.mutants.len(), tests.all.len());
        let mut mutants: Vec<&Mutant> = scratch.mutants.iter().collect();
        mutants.sort_by_key(|m| m.kind);
        let is_open = |m: &&Mutant| known.get(&m.name).is_none_or(|(outcome, _)| asked.again && !outcome.is_caught());
        let mutants: Vec<&Mutant> = mutants.into_iter().filter(is_open).collect();
        let started = Instant::now();
        let next = AtomicUsize::new(0);
        let done = Mutex::new((file, &mut known));
        let work = || -> Result<(), String> {
            while let Some(mutant) = mutants.get(next.fetch_add(1, Relaxed)) {
                let (outcome, by) = try_one(&tests, mutant)?;
                let mut done = done.lock().map_err(|_| "a job panicked")?;
                let (file, known) = &mut *done;
                writeln!(file, "{}\t{by}\t{}", outcome.name(), mutant.name).map_err(|e| format!("{}: {e}", path.display()))?;
                known.insert(mutant.name.clone(), (outcome, by));
                let count = next.load(Relaxed).min(mutants.len());
                if count % 50 == 0 {
                    eprintln!("{count} of {} mutants in {:.0} s", mutants.len(), started.elapsed().as_secs_f64());
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let jobs: Vec<_> = (0..asked.jobs).map(|_| scope.spawn(work)).collect();
            jobs.into_iter().try_for_each(|job| job.join().map_err(|_| String::from("a job panicked"))?)
        })?;
    }
    print!("{}", table(scratch, &known));
    Ok(())
}

/// Runs one mutant against the tests that reach it, those of its own file first, then the cheapest first.
fn try_one(tests: &Tests, mutant: &Mutant) -> Result<(Outcome, String), String> {
    let module = mutant.file.trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::");
    let mut order: Vec<usize> = (0..tests.all.len()).filter(|n| tests.all[*n].reach.contains(&mutant.place)).collect();
    order.sort_by_key(|n| {
        let test = &tests.all[*n];
        let is_own = test.name.starts_with(&module) && test.time < Duration::from_millis(100);
        (test.prints.is_some(), !is_own, test.time)
    });
    if order.is_empty() {
        return Ok((Outcome::Unreached, "-".into()));
    }
    let id = mutant.id.to_string();
    let mut is_seen = None;
    let mut budget = FIRST;
    let mut rest = &order[..];
    while !rest.is_empty() {
        let mut sum = Duration::ZERO;
        let count = rest.iter().take_while(|n| {
            sum += tests.all[**n].time;
            sum <= budget
        });
        let (group, behind) = rest.split_at(count.count().max(1));
        (rest, budget) = (behind, budget * 4);
        let mut programs: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for n in group {
            // the simulator takes one range of seeds at a time
            let part = if tests.all[*n].prints.is_some() { *n } else { 0 };
            programs.entry((tests.all[*n].program, part)).or_default().push(*n);
        }
        for ((program, _), group) in programs {
            let time: Duration = group.iter().map(|n| tests.all[*n].time).sum();
            let (ended, printed) = tests.run(program, &group, &[("MUTANT", &id)], time * 5 + Duration::from_secs(2))?;
            let name = |test: &str| format!("{} {test}", tests.programs[program].name);
            let first = || name(&tests.all[group[0]].name);
            match ended {
                Ended::Passed => {}
                Ended::Late => return Ok((Outcome::Late, first())),
                Ended::Differs => is_seen = is_seen.or_else(|| Some(first())),
                Ended::Failed => {
                    let failed = printed.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED").map(name));
                    return Ok((Outcome::Caught, failed.unwrap_or_else(first)));
                }
            }
        }
    }
    Ok(is_seen.map_or((Outcome::Survived, "-".into()), |by| (Outcome::Seen, by)))
}

/// The table by file and by kind, and the mutants that are not caught.
fn table(scratch: &Scratch, known: &HashMap<String, (Outcome, String)>) -> String {
    let equivalent = equivalent();
    let mut rows: BTreeMap<(u8, String), [usize; 7]> = BTreeMap::new();
    let mut open: Vec<(Outcome, &Mutant)> = Vec::new();
    for mutant in &scratch.mutants {
        let outcome = known.get(&mutant.name).map(|(outcome, _)| *outcome);
        let is_equivalent = equivalent.contains_key(mutant.name.as_str()) && outcome.is_none_or(|o| !o.is_caught());
        let column = match outcome {
            _ if is_equivalent => 5,
            Some(outcome) => Outcome::ALL.iter().position(|o| *o == outcome).unwrap_or(6),
            None => 6,
        };
        let kind = Kind::ALL.iter().position(|kind| *kind == mutant.kind).unwrap_or(0);
        for key in [(0, mutant.file.clone()), (1, format!("{kind} {}", mutant.kind.name())), (2, "all".to_string())] {
            rows.entry(key).or_default()[column] += 1;
        }
        if let Some(outcome) = outcome.filter(|o| !o.is_caught() && !is_equivalent) {
            open.push((outcome, mutant));
        }
    }
    let mut out = String::new();
    open.sort_by_key(|(outcome, m)| (*outcome, m.file.clone(), m.line));
    for (outcome, mutant) in &open {
        let _ = writeln!(out, "{:9} {:>5} {}", outcome.name(), mutant.line, mutant.name);
    }
    let names: Vec<&str> = scratch.mutants.iter().map(|m| m.name.as_str()).collect();
    for name in equivalent.keys().filter(|name| !names.contains(name)) {
        let _ = writeln!(out, "equivalent.txt has what is no mutant of these files: {name}");
    }
    for name in equivalent.keys().filter(|name| known.get(**name).is_some_and(|(o, _)| o.is_caught())) {
        let _ = writeln!(out, "equivalent.txt has what is caught: {name}");
    }
    let _ = writeln!(out, "\n{:30} caught timeout  seen survived unreached equivalent not run  of run", "");
    for ((_, name), [caught, late, seen, survived, unreached, equivalent, open]) in rows {
        let run = caught + late + seen + survived + unreached;
        let share = (caught + late) as f64 * 100.0 / run.max(1) as f64;
        let _ = writeln!(
            out,
            "{:30} {caught:>6} {late:>7} {seen:>5} {survived:>8} {unreached:>9} {equivalent:>10} {open:>7} \
                {share:>5.1} %",
            name.trim_start_matches(|c: char| c.is_ascii_digit()).trim()
        );
    }
    let _ = writeln!(out, "\nnot mutated: {:?}", scratch.left_out);
    out
}
