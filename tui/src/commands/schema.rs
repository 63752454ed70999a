//! `rdmascope schema [NAME]`: the reliable part of an output, as JSON Schema.

use crate::cli::{Color, Schema};
use crate::output;
use crate::report::{self, json};
use crate::stdout::Out;
use anyhow::Result;
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;

/// An output that has a schema: its name, the command that writes it, the schema.
type Row = (&'static str, &'static str, fn() -> Value);

/// Every JSON that leaves this program.
const SCHEMAS: &[Row] = &[
    ("analyze", "rdmascope analyze --format json", json::schema),
    ("anonymize", "rdmascope anonymize --format json", super::anonymize::schema),
    ("compare", "rdmascope compare --format json", rdmascope_compare::points::schema),
    ("diff", "rdmascope diff --format json", rdmascope_compare::diff::schema),
    ("dissect", "rdmascope dissect -T json", output::json::schema),
    ("dissect-ek", "rdmascope dissect -T ek, each line", output::json::schema_of_ek),
    ("dissect-raw", "rdmascope dissect -T jsonraw", output::json::schema_of_raw),
    ("dissect-summary", "rdmascope dissect -s -T json", report::summary::schema),
    ("expect-sarif", "rdmascope analyze --expect FILE --verdicts sarif", rdmascope_compare::expect::sarif_schema),
    ("probe", "rdmascope probe --format json", super::probe::schema),
    ("replay", "rdmascope replay --report OUT", super::replay::schema),
];

/// The schema of an output, closed, with its name and version: what programs of another version write may have another.
fn of((name, _, schema): &Row) -> Value {
    let mut schema = closed(schema());
    // outputs that do not say their version have had one only
    let version = schema.pointer("/properties/schema/const").and_then(Value::as_u64).unwrap_or(1);
    schema["$id"] = json!(format!("urn:rdmascope:{name}:{version}"));
    schema
}

/// The schema with every object closed: no other keys are allowed.
fn closed(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(map) => {
            if map.get("properties").is_some_and(Value::is_object)
                && map.get("type").is_some_and(|kind| kind == "object")
            {
                map.entry("additionalProperties").or_insert(Value::Bool(false));
            }
            map.values_mut().for_each(|value| *value = closed(value.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| *value = closed(value.take())),
        _ => {}
    }
    schema
}

pub(super) fn run(args: &Schema, color: Color) -> Result<ExitCode> {
    let mut out = Out::new(color);
    match SCHEMAS.iter().find(|(name, ..)| Some(*name) == args.name.as_deref()) {
        Some(row) => writeln!(out.buffer, "{}", serde_json::to_string_pretty(&of(row))?)?,
        None => {
            let width = SCHEMAS.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
            for (name, command, ..) in SCHEMAS {
                writeln!(out.buffer, "{name:width$}    {command}")?;
            }
        }
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_knows_every_schema() {
        let names: Vec<&str> = SCHEMAS.iter().map(|(name, ..)| *name).collect();
        assert_eq!(names, crate::cli::SCHEMAS);
    }
}
