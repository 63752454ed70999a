//! `rdmascope probe HOST`: an SMB Direct server put to the cases of the conformance suite.

use super::replay::resolve;
use crate::cli::{Color, Probe, ProbeFormat};
use crate::stdout::Out;
use anyhow::{Context, Result, bail};
use rdmascope_replay::error::Error;
use rdmascope_replay::probe::{Case, Target, Verdict, matching};
use rdmascope_replay::smbd::SETTLE;
use rdmascope_replay::stack::Config;
use rdmascope_report::object;
use rdmascope_report::report::schema::{Version, document};
use std::fmt;
use std::io::Write;
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Version of the JSON; within one, keys are only ever added.
const VERSION: u32 = 1;

/// The JSON Schema of `--format json`.
pub(super) fn schema() -> serde_json::Value {
    document::<Report>("rdmascope probe")
}

object! {
    /// Results of a server in the cases of the conformance suite.
    struct Report {
        /// Version of this format. Within a version, keys are only added.
        schema: Version<VERSION>,
        /// Version of the program.
        rdmascope: &'static str,
        /// Address and port of the server.
        address: String,
        /// Cases that failed.
        failed: u64,
        /// Cases that passed.
        passed: u64,
        /// Cases that do not apply to this server, or were left out to spare it.
        not_applicable: u64,
        /// Cases whose result changed when they were repeated.
        unstable: u64,
        /// Reason of an early end of the run.
        stopped: Option<String>,
        /// Each case, in the order of the run.
        cases: Vec<CaseJson>,
    }
}

object! {
    /// A case.
    struct CaseJson {
        /// Its name, as Microsoft's suite has it where that has the case.
        case: &'static str,
        /// pass, fail, unstable or n/a.
        verdict: &'static str,
        /// Document and section.
        spec: String,
        /// The rule that is tested.
        text: &'static str,
        /// Reason why it did not pass.
        why: Option<String>,
    }
}

/// A case failed.
const FAILED: u8 = 1;

pub(super) fn run(args: &Probe, color: Color) -> Result<ExitCode> {
    let mut cases = matching(args.case.as_deref().unwrap_or(""));
    cases.retain(|case| args.slow || args.list || !case.slow);
    if cases.is_empty() {
        bail!("no case \"{}\"; rdmascope probe --list lists all", args.case.as_deref().unwrap_or_default());
    }
    let mut out = Out::new(color);
    let width = cases.iter().map(|case| case.name.len()).max().unwrap_or(0);
    if args.list && args.format == ProbeFormat::Json {
        let list: Vec<_> = cases
            .iter()
            .map(|case| serde_json::json!({ "case": case.name, "spec": case.spec().to_string(), "text": case.text }))
            .collect();
        writeln!(out.buffer, "{}", serde_json::to_string_pretty(&list)?)?;
        out.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.list {
        for case in &cases {
            writeln!(out.buffer, "{:width$}  {:<18}  {}", case.name, case.spec(), case.text)?;
        }
        out.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    let transport = args.transport.open(&args.class)?;
    let (host, address) = resolve(args.host.as_deref().unwrap_or_default(), transport.kind().port)?;
    let target = Target {
        address,
        config: Config::patient(transport),
        settle: Duration::from_nanos(SETTLE.unsigned_abs()),
        who: args.logon.credentials(&host)?,
        share: args.share.clone(),
        writes: args.allow_writes,
    };
    let mut keep = match &args.keep {
        Some(path) => Some((rdmascope_capture::fresh(path, args.force.existing())?, path)),
        None => None,
    };
    let gentle = is_gentle(args.gentle, args.no_gentle, address.ip());
    let (mut counts, mut rows) = (Counts::default(), Vec::new());
    let mut gone = None;
    for (n, case) in cases.iter().enumerate() {
        let (verdict, wire) = match run_case(*case, &target, gentle) {
            Ok(done) => done,
            // nothing was tested
            Err(e @ Error::Connect { .. }) if n == 0 && !target.answers() => return Err(e.into()),
            Err(e @ Error::Connect { .. }) => (Verdict::Fail(e.to_string()), Vec::new()),
            // the results so far are reported anyway
            Err(e) => {
                out.finish()?;
                return Err(e).with_context(|| format!("stopped at {}", case.name));
            }
        };
        counts.add(&verdict);
        let failed = matches!(verdict, Verdict::Fail(_));
        if failed && let Some((file, path)) = &mut keep {
            file.write_all(&wire).with_context(|| format!("{} cannot be written", path.display()))?;
        }
        match args.format {
            ProbeFormat::Text => {
                writeln!(out.buffer, "{:8}  {:width$}  {}", verdict.name(), case.name, case.spec())?;
                if let Some(why) = verdict.why() {
                    writeln!(out.buffer, "          tried: {}\n          {why}", case.text)?;
                }
                // a case takes seconds, and a user may be waiting for it
                out.finish()?;
            }
            ProbeFormat::Json => rows.push(CaseJson {
                case: case.name,
                verdict: verdict.name(),
                spec: case.spec(),
                text: case.text,
                why: verdict.why().map(ToString::to_string),
            }),
        }
        // a server without places left fails all that follows, which is no verdict on other rules
        if failed && !target.answers() {
            let since = if n == 0 {
                "accepts no connections".into()
            } else {
                format!("accepts no more connections since {}", case.name)
            };
            let left = match cases.len() - n - 1 {
                1 => String::from("1 case was not run"),
                left => format!("{left} cases were not run"),
            };
            gone = Some(format!("{address} {since}: {left}"));
            break;
        }
    }
    let failed = counts.failed;
    match args.format {
        ProbeFormat::Text => {
            writeln!(out.buffer, "\n{counts}")?;
            if let Some(gone) = &gone {
                writeln!(out.buffer, "{gone}")?;
            }
        }
        ProbeFormat::Json => {
            let report = Report {
                schema: Version,
                rdmascope: env!("CARGO_PKG_VERSION"),
                address: address.to_string(),
                failed: failed as u64,
                passed: counts.passed as u64,
                not_applicable: counts.not_applicable as u64,
                unstable: counts.unstable as u64,
                stopped: gone,
                cases: rows,
            };
            writeln!(out.buffer, "{}", rdmascope_report::output::pretty_json(&report)?)?;
        }
    }
    out.finish()?;
    Ok(if failed > 0 { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

/// True if cases that can harm a server are left out: unless told otherwise, on all hosts but this one.
const fn is_gentle(gentle: bool, no_gentle: bool, host: IpAddr) -> bool {
    gentle || !no_gentle && !host.is_loopback()
}

/// Seconds that a case may take, and one that waits for a timer of the server's.
const CASE_WITHIN: Duration = Duration::from_secs(180);
const SLOW_CASE_WITHIN: Duration = Duration::from_secs(900);
/// Number of times a failing case is run: the failure may be due to timing.
const TIMES: u32 = 3;

/// Runs a case; one that does not finish is abandoned and reported.
fn run_case(case: Case, target: &Target, gentle: bool) -> Result<(Verdict, Vec<u8>), Error> {
    if gentle && case.dies_negotiating {
        let why =
            "it leaves a connection that dies in negotiation, which can crash some servers: run it with --no-gentle";
        return Ok((Verdict::NotApplicable(why.into()), Vec::new()));
    }
    let (sender, receiver) = mpsc::channel();
    let other = target.clone();
    thread::spawn(move || sender.send(case.run_repeatedly(&other, if case.slow || gentle { 1 } else { TIMES })));
    let within = if case.slow { SLOW_CASE_WITHIN } else { CASE_WITHIN };
    receiver
        .recv_timeout(within)
        .unwrap_or_else(|_| Ok((Verdict::Fail(format!("it hangs: no end within {} s", within.as_secs())), Vec::new())))
}

/// Number of cases by outcome.
#[derive(Debug, Default)]
struct Counts {
    passed: usize,
    failed: usize,
    unstable: usize,
    not_applicable: usize,
}

impl Counts {
    fn add(&mut self, verdict: &Verdict) {
        *match verdict {
            Verdict::Pass => &mut self.passed,
            Verdict::Fail(_) => &mut self.failed,
            Verdict::Unstable(_) => &mut self.unstable,
            Verdict::NotApplicable(_) => &mut self.not_applicable,
        } += 1;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.passed + self.failed + self.unstable + self.not_applicable;
        write!(f, "{all} {}: {} passed, {} failed", if all == 1 { "case" } else { "cases" }, self.passed, self.failed)?;
        if self.unstable > 0 {
            write!(f, ", {} unstable", self.unstable)?;
        }
        if self.not_applicable > 0 {
            write!(f, ", {} not applicable", self.not_applicable)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_hosts_are_spared_unless_told_otherwise() {
        let [here, other] = ["127.0.0.1", "192.0.2.1"].map(|host| host.parse().unwrap());
        assert!(is_gentle(false, false, other) && !is_gentle(false, false, here));
        assert!(is_gentle(true, false, here) && !is_gentle(false, true, other));
    }
}
