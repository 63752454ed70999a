//! The RDMA channel of READ and WRITE, \[MS-SMB2\] 2.2.19, 2.2.21: the channel field tells the form of the channel
//! information, a list of buffer descriptors (\[MS-SMBD\] 2.2.3.1) or, from SMB 3.1.1 on, an `SMB2_RDMA_TRANSFORM`
//! (2.2.43) that holds such a list and says how the data is encrypted or signed:
//!
//! ```text
//! Channel 1, 2   | descriptor | descriptor | …
//! Channel 3      | RDMA_TRANSFORM | CRYPTO_TRANSFORM signature nonce | … | descriptor | …
//!                  `- RdmaDescriptorOffset, from here -------------------^
//! ```

use super::blob::{Blob, blob};
use super::f as shared;
use crate::fault::{Fault, PResult};
use crate::leaf::read;
use crate::trace::{Off, Trace, Value, scope};
use crate::wire::smbd::BufferDescriptorV1;

wire_enum! {
    /// Type of the channel information of a READ or WRITE.
    pub enum Channel: u32 {
        NONE = 0x00000000, "None";
        RDMA_V1 = 0x00000001, "RDMA V1";
        RDMA_V1_INVALIDATE = 0x00000002, "RDMA V1_INVALIDATE";
        RDMA_TRANSFORM = 0x00000003, "RDMA TRANSFORM";
    }
}

wire_enum! {
    /// Type of a transform, \[MS-SMB2\] 2.2.43.1.
    pub enum TransformType: u16 {
        ENCRYPTION = 0x0001, "SMB2_RDMA_TRANSFORM_TYPE_ENCRYPTION";
        SIGNING = 0x0002, "SMB2_RDMA_TRANSFORM_TYPE_SIGNING";
    }
}

fields! {
    /// Fields of the variable part of channel information.
    pub mod f ["[MS-SMB2] 2.2.19"] {
        INFO: None = "smb2.channel_info_blob", "Channel Info Blob";
        REST: Bytes = "rdmascope.smb2.channel_info.rest", "Bytes that are no whole descriptor";
        SIGNATURE: Bytes as Secret = "rdmascope.smb2.rdma_crypto_transform.signature", "Signature";
        NONCE: Bytes as Id = "rdmascope.smb2.rdma_crypto_transform.nonce", "Nonce";
    }
}

header! {
    /// Opens the channel information of Channel 3.
    pub struct RdmaTransformFixed [NODE = "rdmascope.smb2.rdma_transform", "RDMA transform", "[MS-SMB2] 2.2.43"] {
        /// Bytes from the start of this structure to the descriptors.
        descriptor_offset: le16 = "rdmascope.smb2.rdma_transform.descriptor_offset", "RdmaDescriptorOffset", dec;
        /// Bytes of descriptors.
        descriptor_length: le16 = "rdmascope.smb2.rdma_transform.descriptor_length", "RdmaDescriptorLength", dec;
        /// 0, 1 or 2: what the descriptors are.
        channel: le32 = "rdmascope.smb2.rdma_transform.channel", "Channel", hex, values Channel::VALUES;
        /// Transforms that follow; more than 0.
        transform_count: le16 = "rdmascope.smb2.rdma_transform.transform_count", "TransformCount", dec;
        /// Should be 0.
        reserved1: le16 = "rdmascope.smb2.rdma_transform.reserved1", "Reserved1", hex;
        /// Should be 0.
        reserved2: le32 = "rdmascope.smb2.rdma_transform.reserved2", "Reserved2", hex;
    }
}

header! {
    /// One transform; its signature and nonce follow.
    pub struct CryptoTransformFixed [NODE = "rdmascope.smb2.rdma_crypto_transform", "RDMA crypto transform", "[MS-SMB2] 2.2.43.1"] {
        transform_type: le16 = "rdmascope.smb2.rdma_crypto_transform.type", "TransformType", hex, values TransformType::VALUES;
        /// In bytes.
        signature_length: le16 = "rdmascope.smb2.rdma_crypto_transform.signature_length", "SignatureLength", dec;
        /// In bytes; 0 for signing.
        nonce_length: le16 = "rdmascope.smb2.rdma_crypto_transform.nonce_length", "NonceLength", dec;
        /// Should be 0.
        reserved: le16 = "rdmascope.smb2.rdma_crypto_transform.reserved", "Reserved", hex;
    }
}

/// One transform with its signature and nonce, cut where the bytes end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CryptoTransform<'a> {
    /// Fields of fixed size.
    pub fixed: CryptoTransformFixed,
    /// The signature of the data, or the authentication tag of its encryption.
    pub signature: &'a [u8],
    /// The nonce of the encryption.
    pub nonce: &'a [u8],
}

/// The channel information of Channel 3, or the buffer of a READ reply whose flags say that it is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaTransform<'a> {
    /// Fields of fixed size.
    pub fixed: RdmaTransformFixed,
    /// The buffer descriptors; `offset` counts from the start of the transform.
    pub descriptors: Blob<'a>,
    bytes: &'a [u8],
}

impl<'a> RdmaTransform<'a> {
    /// Takes channel information apart.
    ///
    /// # Errors
    /// Fewer bytes than the fixed part has.
    pub fn parse(bytes: &'a [u8]) -> PResult<'a, Self> {
        let (rest, fixed) = RdmaTransformFixed::parse_flat(bytes, &mut Off)?;
        let descriptors =
            Blob::of(bytes, RdmaTransformFixed::LEN, fixed.descriptor_offset.into(), fixed.descriptor_length.into());
        Ok((&rest[rest.len()..], Self { fixed, descriptors, bytes }))
    }

    /// The transforms that are whole: fewer than `transform_count` where the bytes end, or the descriptors begin,
    /// before.
    pub fn transforms(&self) -> impl Iterator<Item = CryptoTransform<'a>> + use<'a> {
        let (mut left, mut rest) = (self.fixed.transform_count, self.behind_fixed());
        core::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let (next, transform) = crypto_transform(rest, &mut Off).ok()?;
            rest = next;
            Some(transform)
        })
    }

    /// From behind the fixed part to the descriptors (to the end, where there are none behind it).
    fn behind_fixed(&self) -> &'a [u8] {
        let end = match self.descriptors.offset as usize {
            offset if self.descriptors.length > 0 && offset >= RdmaTransformFixed::LEN => offset.min(self.bytes.len()),
            _ => self.bytes.len(),
        };
        &self.bytes[RdmaTransformFixed::LEN.min(end)..end]
    }
}

/// The channel information of a READ or WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelInfo<'a> {
    /// Channel: how the data is to be transferred.
    pub channel: Channel,
    /// Its place as the message states it, and whether that is inside of the message.
    pub blob: Blob<'a>,
}

impl<'a> ChannelInfo<'a> {
    /// The transform, where the channel is 3.
    pub fn transform(&self) -> Option<RdmaTransform<'a>> {
        if self.channel != Channel::RDMA_TRANSFORM {
            return None;
        }
        RdmaTransform::parse(self.blob.bytes).ok().map(|(_, transform)| transform)
    }

    /// The bytes of the descriptor list; empty without RDMA.
    pub fn descriptor_bytes(&self) -> &'a [u8] {
        match self.channel {
            Channel::RDMA_V1 | Channel::RDMA_V1_INVALIDATE => self.blob.bytes,
            Channel::RDMA_TRANSFORM => self.transform().map_or(&[], |t| t.descriptors.bytes),
            _ => &[],
        }
    }

    /// The descriptors that are whole. Allocates nothing.
    pub fn descriptors(&self) -> Descriptors<'a> {
        Descriptors(self.descriptor_bytes())
    }

    /// True if the client asks the server to invalidate the first descriptor's token with its reply.
    pub fn asks_for_invalidation(&self) -> bool {
        match self.transform() {
            Some(transform) => transform.fixed.channel == Channel::RDMA_V1_INVALIDATE.0,
            None => self.channel == Channel::RDMA_V1_INVALIDATE,
        }
    }

    /// True if the list consists of whole descriptors: its length is a multiple of 16.
    pub fn is_whole(&self) -> bool {
        let length = match self.transform() {
            Some(transform) => transform.descriptors.length,
            None => self.blob.length,
        };
        length % BufferDescriptorV1::LEN as u32 == 0
    }

    /// The sum of the descriptors' lengths, in bytes.
    pub fn described_length(&self) -> u64 {
        self.descriptors().map(|d| u64::from(d.length)).sum()
    }
}

/// Walks a list of buffer descriptors.
#[derive(Clone, Copy, Debug)]
pub struct Descriptors<'a>(&'a [u8]);

impl Iterator for Descriptors<'_> {
    type Item = BufferDescriptorV1;

    fn next(&mut self) -> Option<BufferDescriptorV1> {
        let (rest, descriptor) = BufferDescriptorV1::parse_flat(self.0, &mut Off).ok()?;
        self.0 = rest;
        Some(descriptor)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let n = self.0.len() / BufferDescriptorV1::LEN;
        (n, Some(n))
    }
}

impl ExactSizeIterator for Descriptors<'_> {}

/// Reads where the channel information is from its places in the message, and decodes it.
#[inline]
pub(super) fn channel_info<'a, T: Trace>(
    pdu: &'a [u8],
    fixed: usize,
    at: usize,
    channel: u32,
    t: &mut T,
) -> ChannelInfo<'a> {
    let blob = blob(pdu, fixed, (at, 2), (at + 2, 2), t);
    let info = ChannelInfo { channel: Channel(channel), blob };
    if T::ON && !blob.bytes.is_empty() {
        // a fault was reported to the observer where it happened, and the message continues after the list
        let _ = scope(f::INFO, blob.bytes, t, |i, t| match info.channel {
            Channel::RDMA_V1 | Channel::RDMA_V1_INVALIDATE => descriptor_list(i, t),
            Channel::RDMA_TRANSFORM => trace_transform(i, t),
            _ => read::bytes(shared::UNKNOWN, i.len(), i, t).map(|(i, _)| (i, ())),
        });
    }
    info
}

fn descriptor_list<'a, T: Trace>(mut i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    while i.len() >= BufferDescriptorV1::LEN {
        (i, _) = BufferDescriptorV1::parse(i, t)?;
    }
    if !i.is_empty() {
        (i, _) = read::bytes(f::REST, i.len(), i, t)?;
    }
    Ok((i, ()))
}

fn crypto_transform<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, CryptoTransform<'a>> {
    scope(CryptoTransformFixed::NODE, i, t, |i, t| {
        let (i, fixed) = CryptoTransformFixed::parse_flat(i, t)?;
        let (i, signature) = read::bytes(f::SIGNATURE, fixed.signature_length.into(), i, t)?;
        let (i, nonce) = read::bytes(f::NONCE, fixed.nonce_length.into(), i, t)?;
        Ok((i, CryptoTransform { fixed, signature, nonce }))
    })
}

/// Tells the observer an `SMB2_RDMA_TRANSFORM` with its transforms and descriptors.
pub(super) fn trace_transform<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    scope(RdmaTransformFixed::NODE, i, t, |i, t| {
        let (mut rest, fixed) = RdmaTransformFixed::parse_flat(i, t)?;
        let (_, transform) = RdmaTransform::parse(i)?;
        let between = transform.behind_fixed();
        rest = &rest[..between.len().min(rest.len())];
        for _ in 0..fixed.transform_count {
            let Ok((behind, _)) = crypto_transform(rest, t) else {
                // its fault was reported; the descriptors have a place of their own
                rest = &[];
                break;
            };
            rest = behind;
        }
        if rest.iter().any(|b| *b != 0) {
            t.field(shared::UNKNOWN, rest, rest.len(), Value::Bytes(rest));
        }
        let list = transform.descriptors;
        if !list.inside {
            let mut fault =
                Fault::length(RdmaTransformFixed::descriptor_offset, i, (list.offset + list.length) as usize);
            fault.available = i.len() as u32;
            t.fault(&fault);
        }
        descriptor_list(list.bytes, t)?;
        Ok((&i[i.len()..], ()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{NodeValue, Tree};
    use alloc::vec::Vec;

    fn descriptors(n: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for k in 0..n {
            BufferDescriptorV1 { offset: 0x1000 * k, token: 0x1122_3344 + k as u32, length: 4096 }.emit(&mut bytes);
        }
        bytes
    }

    /// A transform as the spec lays it out: encryption with tag and nonce, then the descriptors.
    pub(in super::super) fn transform(n: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        RdmaTransformFixed {
            descriptor_offset: 56,
            descriptor_length: 16 * n as u16,
            channel: 1,
            transform_count: 1,
            reserved1: 0,
            reserved2: 0,
        }
        .emit(&mut bytes);
        CryptoTransformFixed { transform_type: 1, signature_length: 16, nonce_length: 11, reserved: 0 }
            .emit(&mut bytes);
        bytes.extend_from_slice(&[0xaa; 16]);
        bytes.extend_from_slice(&[0xbb; 11]);
        bytes.resize(56, 0);
        bytes.extend_from_slice(&descriptors(n));
        bytes
    }

    fn info(channel: Channel, bytes: &[u8]) -> ChannelInfo<'_> {
        ChannelInfo { channel, blob: Blob { offset: 112, length: bytes.len() as u32, bytes, inside: true } }
    }

    #[test]
    fn a_list_of_descriptors() {
        let bytes = descriptors(3);
        let info = info(Channel::RDMA_V1_INVALIDATE, &bytes);
        assert_eq!(info.descriptors().map(|d| d.token).collect::<Vec<_>>(), [0x1122_3344, 0x1122_3345, 0x1122_3346]);
        assert_eq!(
            (info.described_length(), info.is_whole(), info.asks_for_invalidation(), info.descriptors().len()),
            (12288, true, true, 3)
        );
        let odd = self::info(Channel::RDMA_V1, &bytes[..40]);
        assert_eq!((odd.descriptors().count(), odd.is_whole(), odd.asks_for_invalidation()), (2, false, false));
        assert_eq!(self::info(Channel::NONE, &bytes).descriptors().count(), 0);
    }

    #[test]
    fn a_transform_with_its_descriptors() {
        let bytes = transform(2);
        let info = info(Channel::RDMA_TRANSFORM, &bytes);
        assert_eq!((info.descriptors().count(), info.described_length(), info.is_whole()), (2, 8192, true));
        let crypto: Vec<_> = info.transform().unwrap().transforms().collect();
        assert_eq!(crypto.len(), 1);
        assert_eq!(
            (crypto[0].signature, crypto[0].nonce, crypto[0].fixed.transform_type),
            (&[0xaa; 16][..], &[0xbb; 11][..], 1)
        );
        let mut tree = Tree::new();
        tree.begin(&bytes);
        trace_transform(&bytes, &mut tree).unwrap();
        assert_eq!(tree.number("rdmascope.smb2.rdma_transform.transform_count"), Some(1));
        assert_eq!(tree.all("smb2.buffer_descriptor.token").count(), 2);
        assert!(tree.faults.is_empty());
    }

    #[test]
    fn a_transform_that_is_cut_short_hides_no_descriptor() {
        let mut bytes = transform(2);
        // a signature of 64 bytes, where 32 are left up to the descriptors
        bytes[18..20].copy_from_slice(&64u16.to_le_bytes());
        let mut tree = Tree::new();
        tree.begin(&bytes);
        trace_transform(&bytes, &mut tree).unwrap();
        let told: Vec<_> = tree.all("smb2.buffer_descriptor.token").map(|node| node.value).collect();
        let read: Vec<_> =
            info(Channel::RDMA_TRANSFORM, &bytes).descriptors().map(|d| NodeValue::U(d.token.into())).collect();
        assert_eq!((told, tree.faults.len()), (read, 1));
    }

    #[test]
    fn a_transform_that_lies_gives_what_is_there() {
        let mut bytes = transform(2);
        bytes[8..10].copy_from_slice(&0xffffu16.to_le_bytes());
        let info = info(Channel::RDMA_TRANSFORM, &bytes);
        // a second transform may be read out of the zeros between the first and the descriptors, never more than fit
        assert!(info.transform().unwrap().transforms().count() <= 2);
        for n in 0..bytes.len() {
            let mut tree = Tree::new();
            tree.begin(&bytes[..n]);
            assert!(trace_transform(&bytes[..n], &mut tree).is_err() || !tree.faults.is_empty());
        }
    }
}
