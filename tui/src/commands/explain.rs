//! `rdmascope explain [FINDING|TERM]`: a rule in full or the meaning of a term; without an argument, all rules, one per
//! line.

use crate::cli::{Color, Explain};
use crate::glossary;
use crate::report::words;
use crate::stdout::{Out, width};
use anyhow::{Result, bail};
use rdmascope_analyzer::finding::{Group, Rule, explain};
use rdmascope_dissector::filter::closest;
use std::io::Write;
use std::process::ExitCode;

pub(super) fn run(args: &Explain, color: Color) -> Result<ExitCode> {
    let mut out = Out::new(color);
    match &args.finding {
        Some(wanted) => write(wanted, width(), &mut out.buffer)?,
        None => list(&Rule::all().collect::<Vec<_>>(), width(), &mut out.buffer),
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// The rule with this id, in any case; else the term of this name; else the rules whose ids begin with `wanted`, else
/// those that contain it: one in full, several as a list.
fn write(wanted: &str, columns: usize, out: &mut Vec<u8>) -> Result<()> {
    let upper = wanted.trim().to_ascii_uppercase();
    let those = |fits: &dyn Fn(&str) -> bool| -> Vec<Rule> { Rule::all().filter(|rule| fits(rule.id())).collect() };
    let exact = those(&|id| id == upper);
    if let (true, Some(term)) = (exact.is_empty(), glossary::find(wanted)) {
        out.extend_from_slice(glossary::shown(term, columns).as_bytes());
        return Ok(());
    }
    let found = [exact, those(&|id| id.starts_with(&upper)), those(&|id| id.contains(&upper))];
    let found = found.into_iter().find(|rules| !rules.is_empty()).unwrap_or_default();
    match found[..] {
        [] => {
            match closest(&upper, Rule::all().map(|rule| rule.id()))
                .or_else(|| closest(wanted, glossary::TERMS.iter().map(|t| t.name)))
            {
                Some(near) => bail!("no finding or term \"{wanted}\"; did you mean {near}?"),
                None => bail!(
                    "no finding or term \"{wanted}\"; rdmascope explain lists all findings, and the manual's glossary \
                        all terms"
                ),
            }
        }
        [rule] => out.extend_from_slice(explain(rule).as_bytes()),
        _ => list(&found, columns, out),
    }
    Ok(())
}

/// Rules under the titles of their groups, within `columns` if that leaves room for a few words.
fn list(rules: &[Rule], columns: usize, out: &mut Vec<u8>) {
    let width = rules.iter().map(|rule| rule.id().len()).max().unwrap_or(0);
    for &group in Group::ALL {
        let mut members = rules.iter().map(|rule| rule.row()).filter(|row| row.group == group).peekable();
        if members.peek().is_none() {
            continue;
        }
        // writing to a vector cannot fail
        let _ = writeln!(out, "{}{}", if out.is_empty() { "" } else { "\n" }, group.title());
        for row in members {
            let before = width + 11;
            let mut lines = words::wrap(row.title, columns.saturating_sub(before).max(24)).into_iter();
            let _ =
                writeln!(out, "  {:width$}  {:5}  {}", row.id, row.severity.name(), lines.next().unwrap_or_default());
            for line in lines {
                let _ = writeln!(out, "{:before$}{line}", "");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(wanted: &str) -> Result<String, String> {
        let mut out = Vec::new();
        write(wanted, usize::MAX, &mut out).map_err(|e| e.to_string())?;
        Ok(String::from_utf8(out).expect("output is text"))
    }

    #[test]
    fn all_are_listed_under_their_group() {
        let mut out = Vec::new();
        list(Rule::ALL, usize::MAX, &mut out);
        let text = String::from_utf8(out).unwrap();
        for rule in Rule::ALL {
            let line = text
                .lines()
                .find(|line| line.split_whitespace().next() == Some(rule.id()))
                .unwrap_or_else(|| panic!("{rule}"));
            assert!(line.ends_with(rule.row().title));
        }
        assert!(text.starts_with("SMB Direct negotiation\n  SMBD-NEG-FIRST "));
        assert_eq!(text.lines().filter(|line| !line.is_empty()).count(), Rule::ALL.len() + Group::ALL.len());
    }

    #[test]
    fn a_list_fits_a_terminal() {
        let mut out = Vec::new();
        list(Rule::ALL, 80, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().all(|line| words::columns(line) <= 80), "{text}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let mut whole = Vec::new();
        list(Rule::ALL, usize::MAX, &mut whole);
        assert_eq!(words(&text), words(&String::from_utf8(whole).unwrap()));
    }

    #[test]
    fn case_does_not_matter_and_a_part_is_enough() {
        let whole = output("SMBD-NEG-RSP-FRAGSIZE").unwrap();
        assert_eq!(whole, explain(Rule::SmbdNegRspFragsize));
        assert_eq!(output(" smbd-neg-rsp-frag").unwrap(), whole);
        assert_eq!(output("43185").unwrap(), explain(Rule::BugCve202643185));
        // an id that is also the beginning of another is itself
        assert_eq!(output("smb2-error").unwrap(), explain(Rule::Smb2Error));
    }

    #[test]
    fn several_that_fit_are_listed() {
        let text = output("smbd-neg-rsp").unwrap();
        assert!(text.starts_with("SMB Direct negotiation\n"));
        assert!(
            text.lines().skip(1).all(|line| line.starts_with("  SMBD-NEG-RSP-")) && text.lines().count() > 5,
            "{text}"
        );
    }

    #[test]
    fn an_unknown_name_is_an_error_with_a_suggestion() {
        assert_eq!(output("smbd-flgas").unwrap_err(), "no finding or term \"smbd-flgas\"; did you mean SMBD-FLAGS?");
        assert!(
            output("qqq").unwrap_err().starts_with("no finding or term \"qqq\"; rdmascope explain lists all findings")
        );
    }

    #[test]
    fn a_term_is_explained_too() {
        assert!(output("icrc").unwrap().starts_with("ICRC\n  Checksum at the end"));
        assert!(output("Credit").unwrap().starts_with("credits (SMB Direct)\n"));
    }
}
