//! Known bugs that are added at run time. One test: what is given holds for the whole program.

use rdmascope_analyzer::rules::{GIVEN_MAX, Row, Rule, give};

/// A known bug like one of the built-in ones.
fn row(id: &'static str, title: &'static str) -> &'static Row {
    let Row { severity, group, spec, says, causes, cure, documented, hits, .. } = *Rule::BugKsmbdEarlyData.declared();
    Box::leak(Box::new(Row { id, title, severity, group, spec, says, causes, cure, documented, hits }))
}

#[test]
fn rows_replace_those_with_their_id_and_so_many_are_new() {
    let (new, mine) = (row("MY-BUG", "A new one"), row(Rule::BugKsmbdEarlyData.id(), "My words for it"));
    let rows = |new_ones: usize| [vec![mine], vec![new; new_ones]].concat();
    assert_eq!(give(&rows(GIVEN_MAX + 1)), None, "too many are new");
    assert_eq!(Rule::all().count(), Rule::ALL.len());
    let rules = give(&rows(GIVEN_MAX)).expect("so many may be new");
    assert_eq!((rules[0], rules[1], rules.len()), (Rule::BugKsmbdEarlyData, Rule::Given(0), GIVEN_MAX + 1));
    assert_eq!(
        (rules[0].row().title, rules[1].row().title, Rule::all().count()),
        (mine.title, new.title, Rule::ALL.len() + GIVEN_MAX)
    );
    assert_eq!(give(&[new]), None, "once");
}
