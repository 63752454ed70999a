//! JSON with a schema: the part that programs may rely on is declared once, by [`object!`], which makes the JSON and
//! its JSON Schema (2020-12).
//!
//! ```text
//! object! { struct Point { /// When.  time: Seconds, … } } ─▶ struct Point, serialized ─▶ {"time": 0.000012345}
//!                                                          └▶ Point::schema()          ─▶ {"properties": {"time": …}, …}
//! ```

use rdmascope_dissector::calendar::DateTime;
use serde::Serialize;
use serde::ser::{Error, SerializeMap, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// A type with a JSON Schema for its values.
pub trait Schema {
    /// Its JSON Schema.
    fn schema() -> Value;
}

/// A schema with a sentence about it.
fn described(mut schema: Value, text: &str) -> Value {
    if let Value::Object(map) = &mut schema {
        map.insert("description".to_owned(), json!(text.trim()));
    }
    schema
}

/// The schema of a whole document.
pub fn document<T: Schema>(title: &str) -> Value {
    let mut schema = T::schema();
    if let Value::Object(map) = &mut schema {
        map.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        map.insert("title".to_owned(), json!(title));
    }
    schema
}

/// Declares an object: a struct that is written with its fields in this order, and its schema. A field with `?` after
/// its name is left out if it is `None`; every other one is always present.
#[macro_export]
macro_rules! object {
    ($(#[doc = $text:literal])* struct $name:ident { $($body:tt)* }) => {
        $crate::object! { @field [$($text)*] $name {} {} $($body)* }
    };
    (@field [$($text:literal)*] $name:ident { $($fields:tt)* } { $($rows:tt)* } $(#[doc = $doc:literal])* $field:ident?: $type:ty, $($rest:tt)*) => {
        $crate::object! { @field [$($text)*] $name
            { $($fields)* #[serde(skip_serializing_if = "Option::is_none")] $field: Option<$type>, }
            { $($rows)* (stringify!($field).trim_start_matches("r#"), false, <$type as $crate::report::schema::Schema>::schema(), concat!($($doc),*)), }
            $($rest)* }
    };
    (@field [$($text:literal)*] $name:ident { $($fields:tt)* } { $($rows:tt)* } $(#[doc = $doc:literal])* $field:ident: $type:ty, $($rest:tt)*) => {
        $crate::object! { @field [$($text)*] $name
            { $($fields)* $field: $type, }
            { $($rows)* (stringify!($field).trim_start_matches("r#"), true, <$type as $crate::report::schema::Schema>::schema(), concat!($($doc),*)), }
            $($rest)* }
    };
    (@field [$($text:literal)*] $name:ident { $($fields:tt)* } { $($rows:tt)* }) => {
        #[derive(serde::Serialize)]
        struct $name { $($fields)* }

        impl $crate::report::schema::Schema for $name {
            fn schema() -> serde_json::Value {
                $crate::report::schema::object_of(concat!($($text),*), vec![$($rows)*])
            }
        }
    };
}
pub use crate::object;

/// The schema of an object: the name of each key, whether it is always present, its schema, and its description.
pub fn object_of(text: &str, rows: Vec<(&'static str, bool, Value, &str)>) -> Value {
    let required: Vec<&str> = rows.iter().filter(|(_, always, ..)| *always).map(|(name, ..)| *name).collect();
    let properties: Map<String, Value> =
        rows.into_iter().map(|(name, _, schema, text)| (name.to_owned(), described(schema, text))).collect();
    described(
        json!({"type": "object", "additionalProperties": false, "required": required, "properties": properties}),
        text,
    )
}

macro_rules! simple {
    ($($type:ty => $schema:expr;)*) => {
        $(impl Schema for $type {
            fn schema() -> Value {
                $schema
            }
        })*
    };
}

simple! {
    bool => json!({"type": "boolean"});
    u16 => json!({"type": "integer", "minimum": 0, "maximum": u16::MAX});
    u32 => json!({"type": "integer", "minimum": 0, "maximum": u32::MAX});
    u64 => json!({"type": "integer", "minimum": 0});
    i64 => json!({"type": "integer"});
    &'static str => json!({"type": "string"});
    String => json!({"type": "string"});
}

impl<T: Schema> Schema for Option<T> {
    fn schema() -> Value {
        json!({"anyOf": [T::schema(), {"type": "null"}]})
    }
}

impl<T: Schema> Schema for Vec<T> {
    fn schema() -> Value {
        json!({"type": "array", "items": T::schema()})
    }
}

impl<A: Schema, B: Schema> Schema for (A, B) {
    fn schema() -> Value {
        json!({"type": "array", "prefixItems": [A::schema(), B::schema()], "items": false, "minItems": 2})
    }
}

/// The version of a format, which is that of its schema, too.
#[derive(Clone, Copy, Debug)]
pub struct Version<const N: u32>;

impl<const N: u32> Serialize for Version<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(N)
    }
}

impl<const N: u32> Schema for Version<N> {
    fn schema() -> Value {
        json!({"type": "integer", "const": N})
    }
}

/// Nanoseconds, written as seconds with nine decimals: a number, so that `.latency > 0.05` works.
#[derive(Clone, Copy, Debug)]
pub struct Seconds(pub i64);

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(super::words::seconds(self.0)).map_err(S::Error::custom)?.serialize(serializer)
    }
}

impl Schema for Seconds {
    fn schema() -> Value {
        json!({"type": "number"})
    }
}

/// ns since 1970, written as a date with nine decimals of a second, UTC.
#[derive(Clone, Copy, Debug)]
pub struct Date(pub i64);

impl Serialize for Date {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (seconds, ns) = (self.0.div_euclid(1_000_000_000), self.0.rem_euclid(1_000_000_000));
        let DateTime { year, month, day, hour, minute, second } = DateTime::of_unix_seconds(seconds);
        serializer
            .collect_str(&format_args!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ns:09}Z"))
    }
}

impl Schema for Date {
    fn schema() -> Value {
        json!({"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{9}Z$"})
    }
}

/// 64 bits that are not a count: an address, an id. Many programs that read JSON are limited to 53 bits.
#[derive(Clone, Copy, Debug)]
pub struct Hex(pub u64);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:#018x}", self.0))
    }
}

impl Schema for Hex {
    fn schema() -> Value {
        json!({"type": "string", "pattern": "^0x[0-9a-f]{16}$"})
    }
}

/// One of each end.
#[derive(Debug, Serialize)]
pub struct Pair<T> {
    client: T,
    server: T,
}

impl<T> Pair<T> {
    /// The client is 0.
    pub fn of(mut each: impl FnMut(usize) -> T) -> Self {
        Self { client: each(0), server: each(1) }
    }
}

impl<T: Schema> Schema for Pair<T> {
    fn schema() -> Value {
        object_of(
            "",
            vec![("client", true, T::schema(), "The client's."), ("server", true, T::schema(), "The server's.")],
        )
    }
}

/// An object with a number for each name.
#[derive(Debug)]
pub struct Counted(pub Vec<(&'static str, u64)>);

impl Serialize for Counted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, n) in &self.0 {
            map.serialize_entry(name, n)?;
        }
        map.end()
    }
}

impl Schema for Counted {
    fn schema() -> Value {
        json!({"type": "object", "additionalProperties": u64::schema()})
    }
}

/// An object with an object for each name.
#[derive(Debug)]
pub struct Named<T>(pub Vec<(&'static str, T)>);

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<T: Schema> Schema for Named<T> {
    fn schema() -> Value {
        json!({"type": "object", "additionalProperties": T::schema()})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    object! {
        /// A thing.
        struct Thing {
            /// When.
            time: Seconds,
            /// What.
            name: String,
            /// Where, if anywhere.
            place?: Hex,
        }
    }

    #[test]
    fn times_are_numbers_of_nine_decimals_and_large_integers_are_strings() {
        let text = |thing: &Thing| crate::output::pretty_json(thing).unwrap();
        let thing = Thing { time: Seconds(-1_000_000_250), name: "x".to_owned(), place: Some(Hex(u64::MAX)) };
        assert_eq!(
            text(&thing),
            "{\n  \"time\": -1.000000250,\n  \"name\": \"x\",\n  \"place\": \"0xffffffffffffffff\"\n}"
        );
        assert!(!text(&Thing { place: None, ..thing }).contains("place"));
        let date = |ns| serde_json::to_string(&Date(ns)).unwrap();
        assert_eq!(date(1_700_000_000_000_000_001), "\"2023-11-14T22:13:20.000000001Z\"");
        assert_eq!(date(-1), "\"1969-12-31T23:59:59.999999999Z\"");
    }

    #[test]
    fn a_schema_says_what_is_always_there_and_allows_nothing_else() {
        let schema = document::<Thing>("a thing");
        assert_eq!(schema["required"], json!(["time", "name"]));
        assert_eq!((&schema["additionalProperties"], &schema["description"]), (&json!(false), &json!("A thing.")));
        assert_eq!(schema["properties"]["time"], json!({"type": "number", "description": "When."}));
    }
}
