//! The definition of a field: declared once, read by tree, JSON, display filter, columns, completion and the Wireshark
//! plugin.
//!
//! Names, kinds and bases are Wireshark's where Wireshark has the field (`tshark -G fields` is the oracle).

/// Every use of a field refers to its one declaration.
pub type Def = &'static FieldDef;

/// Prefix of the names of fields that Wireshark does not have.
pub const OURS: &str = "rdmascope.";

/// Names of values, ascending by value.
pub type Values = &'static [(u64, &'static str)];

/// The type of a field, one for one with Wireshark's `FT_` types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A subtree or a marker without a value (`FT_NONE`).
    None,
    /// A protocol: the root of its subtree (`FT_PROTOCOL`).
    Protocol,
    /// One bit; [`FieldDef::width`] is the width in bits of the integer it sits in (`FT_BOOLEAN`).
    Bool,
    /// Unsigned integers by width in bits.
    U8,
    /// 16 bits.
    U16,
    /// 24 bits.
    U24,
    /// 32 bits.
    U32,
    /// 40 bits.
    U40,
    /// 48 bits.
    U48,
    /// 56 bits.
    U56,
    /// 64 bits.
    U64,
    /// Signed integers by width in bits.
    I8,
    /// 16 bits.
    I16,
    /// 32 bits.
    I32,
    /// 64 bits.
    I64,
    /// A computed real number (`FT_DOUBLE`), carried as the bits of an `f64` in [`crate::trace::Value::U`].
    Double,
    /// A run of bytes (`FT_BYTES`).
    Bytes,
    /// Text in ASCII or UTF-8 (`FT_STRING`).
    Str,
    /// Text in UTF-16, little-endian (`FT_STRING` to Wireshark).
    Utf16,
    /// Four bytes (`FT_IPv4`).
    Ipv4,
    /// Sixteen bytes (`FT_IPv6`).
    Ipv6,
    /// Six bytes (`FT_ETHER`).
    Ether,
    /// Sixteen bytes, the first three groups little-endian (`FT_GUID`).
    Guid,
    /// Eight bytes (`FT_EUI64`).
    Eui64,
    /// A point in time, [`crate::trace::Value::Time`] (`FT_ABSOLUTE_TIME`).
    AbsTime,
    /// A duration, [`crate::trace::Value::Time`] (`FT_RELATIVE_TIME`).
    RelTime,
    /// The number of another frame (`FT_FRAMENUM`).
    FrameNum,
}

impl Kind {
    /// Wireshark's name of the type, as `tshark -G fields` prints it.
    pub const fn wireshark(self) -> &'static str {
        match self {
            Self::None => "FT_NONE",
            Self::Protocol => "FT_PROTOCOL",
            Self::Bool => "FT_BOOLEAN",
            Self::U8 => "FT_UINT8",
            Self::U16 => "FT_UINT16",
            Self::U24 => "FT_UINT24",
            Self::U32 => "FT_UINT32",
            Self::U40 => "FT_UINT40",
            Self::U48 => "FT_UINT48",
            Self::U56 => "FT_UINT56",
            Self::U64 => "FT_UINT64",
            Self::I8 => "FT_INT8",
            Self::I16 => "FT_INT16",
            Self::I32 => "FT_INT32",
            Self::I64 => "FT_INT64",
            Self::Double => "FT_DOUBLE",
            Self::Bytes => "FT_BYTES",
            Self::Str | Self::Utf16 => "FT_STRING",
            Self::Ipv4 => "FT_IPv4",
            Self::Ipv6 => "FT_IPv6",
            Self::Ether => "FT_ETHER",
            Self::Guid => "FT_GUID",
            Self::Eui64 => "FT_EUI64",
            Self::AbsTime => "FT_ABSOLUTE_TIME",
            Self::RelTime => "FT_RELATIVE_TIME",
            Self::FrameNum => "FT_FRAMENUM",
        }
    }

    /// Width in bits of an integer kind, 0 for the others.
    pub const fn bits(self) -> u32 {
        match self {
            Self::U8 | Self::I8 => 8,
            Self::U16 | Self::I16 => 16,
            Self::U24 => 24,
            Self::U32 | Self::I32 => 32,
            Self::U40 => 40,
            Self::U48 => 48,
            Self::U56 => 56,
            Self::U64 | Self::I64 => 64,
            _ => 0,
        }
    }

    /// True if values are unsigned integers.
    pub const fn is_unsigned(self) -> bool {
        matches!(self, Self::U8 | Self::U16 | Self::U24 | Self::U32 | Self::U40 | Self::U48 | Self::U56 | Self::U64)
    }

    /// True if values are signed integers.
    pub const fn is_signed(self) -> bool {
        matches!(self, Self::I8 | Self::I16 | Self::I32 | Self::I64)
    }
}

/// Notation of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Base {
    /// No base: the value is not a number.
    None,
    /// Decimal.
    Dec,
    /// `0x` and as many digits as the kind has.
    Hex,
    /// Octal, with a leading 0.
    Oct,
    /// Decimal, hexadecimal in brackets.
    DecHex,
    /// Hexadecimal, decimal in brackets.
    HexDec,
}

impl Base {
    /// Wireshark's name of the base, as `tshark -G fields` prints it.
    pub const fn wireshark(self) -> &'static str {
        match self {
            Self::None => "BASE_NONE",
            Self::Dec => "BASE_DEC",
            Self::Hex => "BASE_HEX",
            Self::Oct => "BASE_OCT",
            Self::DecHex => "BASE_DEC_HEX",
            Self::HexDec => "BASE_HEX_DEC",
        }
    }
}

/// One field, or one subtree.
#[derive(Debug)]
pub struct FieldDef {
    /// Display-filter name.
    pub name: &'static str,
    /// [`id_of`] the name: fields compare by number, never by address, since a name may be declared in several
    /// messages.
    pub id: u32,
    /// Text before the value in the tree.
    pub label: &'static str,
    /// The type.
    pub kind: Kind,
    /// Notation of numbers.
    pub base: Base,
    /// The bits of the containing integer that are this field's; 0 for a field of its own. The value is given shifted
    /// down.
    pub mask: u64,
    /// For a [`Kind::Bool`]: width in bits of the containing integer (8 where it stands alone).
    pub width: u8,
    /// Names of values; empty for none.
    pub values: Values,
    /// Specification of the field: document and section.
    pub spec: &'static str,
    /// Kind of information that the value reveals about people, machines and files.
    pub privacy: Privacy,
    /// True if it only repeats other fields for filters, under a common or another name: no detail pane shows it.
    pub hidden: bool,
}

/// Privacy class of a field: decides how `anonymize` treats its bytes. Most fields take it from their [`Kind`]
/// ([`Privacy::of`]); others declare it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Privacy {
    /// Nothing: numbers of the protocol, sizes, times, flags.
    Keep,
    /// Nothing by itself: the fields inside of it say it of their bytes. Bytes that no field inside of it claims are
    /// not known, and are blanked.
    Inside,
    /// The same, in BER or DER: tags and lengths are the protocol's.
    Ber,
    /// A hardware address, six bytes or the EUI-64 made of them.
    Mac,
    /// A network address, four or sixteen bytes; a GID.
    Address,
    /// A name of a host, share, user, domain or file; a path.
    Name,
    /// Bytes that stand for something and mean nothing: GUIDs, file handles, state ids, verifiers. Equal ones stay
    /// equal.
    Id,
    /// A security identifier.
    Sid,
    /// The number of a user or a group.
    User,
    /// A key, a hash, a signature, a ticket.
    Secret,
    /// Contents of a file.
    Data,
}

impl Privacy {
    /// Privacy class of a kind, for fields that declare none.
    pub const fn of(kind: Kind) -> Self {
        match kind {
            Kind::None | Kind::Protocol | Kind::Bytes => Self::Inside,
            Kind::Str | Kind::Utf16 => Self::Name,
            Kind::Ipv4 | Kind::Ipv6 => Self::Address,
            Kind::Ether | Kind::Eui64 => Self::Mac,
            Kind::Guid => Self::Id,
            _ => Self::Keep,
        }
    }

    /// The word of command lines and reports.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Keep => "structure",
            Self::Inside | Self::Ber => "unknown",
            Self::Mac => "mac",
            Self::Address => "address",
            Self::Name => "name",
            Self::Id => "id",
            Self::Sid => "sid",
            Self::User => "user",
            Self::Secret => "secret",
            Self::Data => "data",
        }
    }
}

impl PartialEq for FieldDef {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.name == other.name
    }
}
impl Eq for FieldDef {}

impl FieldDef {
    /// The name of `value`, where it has one.
    pub fn value_name(&self, value: u64) -> Option<&'static str> {
        name_of(self.values, value)
    }

    /// The protocol the field belongs to: the first part of its name.
    pub fn protocol(&self) -> &'static str {
        self.name.split('.').next().unwrap_or(self.name)
    }
}

/// The name of `value` in `values`.
pub fn name_of(values: Values, value: u64) -> Option<&'static str> {
    // short tables are the rule, and they need not be sorted to be right
    if values.len() <= 16 {
        return values.iter().find(|(v, _)| *v == value).map(|(_, n)| *n);
    }
    values.binary_search_by_key(&value, |(v, _)| *v).ok().map(|i| values[i].1)
}

/// The number of a field name: FNV-1a, computed at compile time. The registry's tests prove that no two names share
/// one.
pub const fn id_of(name: &str) -> u32 {
    let (bytes, mut hash, mut i) = (name.as_bytes(), 0x811c_9dc5_u32, 0);
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u32).wrapping_mul(0x0100_0193);
        i += 1;
    }
    hash
}

/// A set of fields that is asked fast and may be wrong one way: two sets that [meet](Self::meets) may have no field in
/// common, but two that do not, have none. Of one that was declared, the [fields](Self::fields) are known too.
#[derive(Clone, Copy, Debug, Default)]
pub struct FieldSet {
    bits: [u64; 8],
    lists: [&'static [Def]; Self::LISTS],
}

impl FieldSet {
    const LISTS: usize = 4;

    /// The set of these fields.
    pub const fn of(fields: &'static [Def]) -> Self {
        let (mut set, mut i) = (Self { bits: [0; 8], lists: [fields, &[], &[], &[]] }, 0);
        while i < fields.len() {
            set = set.with(fields[i].id);
            i += 1;
        }
        set
    }

    /// The set with one more field, by its [`FieldDef::id`], which is not among its [fields](Self::fields).
    pub const fn with(mut self, id: u32) -> Self {
        self.bits[(id >> 6) as usize % self.bits.len()] |= 1 << (id % 64);
        self
    }

    /// True if it may have the field with this [`FieldDef::id`].
    #[inline(always)]
    pub const fn may_have(&self, id: u32) -> bool {
        self.bits[(id >> 6) as usize % self.bits.len()] >> (id % 64) & 1 != 0
    }

    /// The set of the fields of both, of four declarations at most.
    pub const fn and(mut self, other: Self) -> Self {
        let mut i = 0;
        while i < self.bits.len() {
            self.bits[i] |= other.bits[i];
            i += 1;
        }
        let (mut at, mut from) = (0, 0);
        while from < Self::LISTS {
            if !other.lists[from].is_empty() {
                while !self.lists[at].is_empty() {
                    at += 1;
                }
                self.lists[at] = other.lists[from];
            }
            from += 1;
        }
        self
    }

    /// True if the sets may have a field in common.
    #[inline(always)]
    pub fn meets(&self, other: &Self) -> bool {
        let (mut common, mut i) = (0, 0);
        while i < self.bits.len() {
            common |= self.bits[i] & other.bits[i];
            i += 1;
        }
        common != 0
    }

    /// The fields of a set that was declared.
    pub fn fields(&self) -> impl Iterator<Item = Def> + '_ {
        self.lists.iter().flat_map(|list| list.iter().copied())
    }
}

/// A message or protocol that declares fields: what [`crate::registry`] collects.
pub trait Fields {
    /// The declarations of its bits, as associated constants with the names of the methods that read them: the mask of
    /// each is the value for those who write it.
    type Bits;
    /// Every field of it, its own subtree first.
    const FIELDS: &'static [Def];
}
