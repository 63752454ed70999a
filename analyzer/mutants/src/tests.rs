//! The tests, each with its time and the places that it reaches.

use crate::scratch::Scratch;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Seeds of one run of the simulator.
const SEEDS: u64 = 20;
/// KiB of memory that a test may have.
const MEMORY: u64 = 3 << 20;

/// A program with tests.
#[derive(Debug)]
pub struct Program {
    pub path: PathBuf,
    /// The folder in which it runs.
    folder: PathBuf,
    pub name: String,
}

/// A test.
#[derive(Debug)]
pub struct Test {
    /// Which program has it.
    pub program: usize,
    pub name: String,
    pub time: Duration,
    pub reach: HashSet<u32>,
    /// What the simulator prints of the code as it is.
    pub prints: Option<String>,
}

/// All of them.
pub struct Tests {
    pub programs: Vec<Program>,
    pub all: Vec<Test>,
    folder: PathBuf,
}

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    Passed,
    Failed,
    /// It took too long.
    Late,
    /// It passed, and printed something else.
    Differs,
}

impl Tests {
    /// Runs each test that was built.
    pub fn new(scratch: &Scratch, folder: &Path, seeds: u64) -> Result<Self, String> {
        let mut tests = Self { programs: Vec::new(), all: Vec::new(), folder: folder.into() };
        for line in scratch.built.lines().filter(|line| line.trim_start().starts_with("Executable")) {
            let Some((name, path)) = line.trim().trim_start_matches("Executable ").split_once(" (") else { continue };
            let path = scratch.root.join(path.trim_end_matches(')'));
            let is_simulator = name.ends_with("main.rs") || path.to_string_lossy().contains("rdmascope_sim");
            let of = if is_simulator || !scratch.root.join("analyzer").join(name).exists() && name.starts_with("tests/") {
                "sim"
            } else {
                "analyzer"
            };
            tests.programs.push(Program { path, folder: scratch.root.join(of), name: format!("{of} {name}") });
        }
        tests.list()?;
        if seeds > 0 {
            let path = scratch.target.join("debug/rdmascope-sim");
            tests.programs.push(Program { path, folder: scratch.root.clone(), name: "rdmascope-sim".into() });
            for first in (1..=seeds).step_by(SEEDS as usize) {
                tests.add(tests.programs.len() - 1, first.to_string(), true);
            }
        }
        tests.measure()?;
        Ok(tests)
    }

    fn add(&mut self, program: usize, name: String, prints: bool) {
        let prints = prints.then(String::new);
        self.all.push(Test { program, name, time: Duration::ZERO, reach: HashSet::new(), prints });
    }

    fn list(&mut self) -> Result<(), String> {
        for n in 0..self.programs.len() {
            let names = |more: &[&str]| -> Result<Vec<String>, String> {
                let program = &self.programs[n];
                let output = Command::new(&program.path)
                    .args(["--list", "--format", "terse"])
                    .args(more)
                    .current_dir(&program.folder)
                    .output()
                    .map_err(|e| format!("{}: {e}", program.path.display()))?;
                let told = String::from_utf8_lossy(&output.stdout).into_owned();
                Ok(told.lines().filter_map(|line| line.strip_suffix(": test").map(String::from)).collect())
            };
            let ignored = names(&["--ignored"])?;
            for name in names(&[])?.into_iter().filter(|name| !ignored.contains(name)) {
                self.add(n, name, false);
            }
        }
        Ok(())
    }

    /// Runs each test twice: for its time, and for what it reaches.
    fn measure(&mut self) -> Result<(), String> {
        eprintln!("runs {} tests twice", self.all.len());
        let reach = self.folder.join("reach");
        let mut kept = Vec::new();
        for n in 0..self.all.len() {
            let started = Instant::now();
            let (ended, printed) = self.run(self.all[n].program, &[n], &[("MUTANT", "0")], Duration::from_secs(600))?;
            self.all[n].time = started.elapsed();
            if ended != Ended::Passed && ended != Ended::Differs {
                eprintln!("left out, as it fails without a mutant: {} {}", self.programs[self.all[n].program].name, self.all[n].name);
                continue;
            }
            if self.all[n].prints.is_some() {
                self.all[n].prints = Some(printed);
            }
            let _ = fs::remove_file(&reach);
            self.run(self.all[n].program, &[n], &[("MUTANT_REACH", &reach.to_string_lossy())], Duration::from_secs(600))?;
            let text = fs::read_to_string(&reach).unwrap_or_default();
            self.all[n].reach = text.lines().filter_map(|line| line.parse().ok()).collect();
            kept.push(n);
        }
        let mut n = 0;
        self.all.retain(|_| {
            n += 1;
            kept.contains(&(n - 1))
        });
        Ok(())
    }

    /// Runs tests of one program; what the simulator prints is compared.
    pub fn run(&self, program: usize, tests: &[usize], variables: &[(&str, &str)], limit: Duration) -> Result<(Ended, String), String> {
        let of = &self.programs[program];
        let output = self.folder.join(format!("output-{:?}", std::thread::current().id()));
        let file = |path: &Path| fs::File::create(path).map_err(|e| format!("{}: {e}", path.display()));
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("ulimit -v {MEMORY}; ulimit -c 0; exec \"$0\" \"$@\"")]).arg(&of.path);
        let is_simulator = tests.iter().any(|n| self.all[*n].prints.is_some());
        if is_simulator {
            command.args(["--first", &self.all[tests[0]].name, "--count", &SEEDS.to_string()]);
        } else {
            command.args(["--exact", "--test-threads", "1"]).args(tests.iter().map(|n| &self.all[*n].name));
        }
        command.current_dir(&of.folder).env("CARGO_MANIFEST_DIR", &of.folder).env("RUST_BACKTRACE", "0");
        command.env("PROPTEST_MAX_SHRINK_ITERS", "0").env_remove("MUTANT").env_remove("MUTANT_REACH").envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(file(&output)?).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|e| format!("{}: {e}", of.path.display()))?;
        let started = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
                break status;
            }
            if started.elapsed() > limit {
                let _ = child.kill();
                let _ = child.wait();
                return Ok((Ended::Late, String::new()));
            }
            std::thread::sleep((started.elapsed() / 20).clamp(Duration::from_micros(300), Duration::from_millis(50)));
        };
        let printed = String::from_utf8_lossy(&fs::read(&output).unwrap_or_default()).into_owned();
        if !status.success() {
            return Ok((Ended::Failed, printed));
        }
        if is_simulator {
            // the first line has the time that it took
            let printed: String = printed.split_inclusive('\n').skip(1).collect();
            let same = self.all[tests[0]].prints.as_ref() == Some(&printed);
            return Ok((if same { Ended::Passed } else { Ended::Differs }, printed));
        }
        Ok((Ended::Passed, printed))
    }
}
