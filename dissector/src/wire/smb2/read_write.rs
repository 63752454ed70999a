//! READ and WRITE, \[MS-SMB2\] 2.2.19 to 2.2.22. Over RDMA their data goes beside the message, into or out of the
//! memory that the channel information describes.
//!
//! ```text
//! READ request    offset, length, file, channel ── reply: data, or DataRemaining bytes by RDMA Write
//! WRITE request   offset, file, channel, data or RemainingBytes to be fetched by RDMA Read ── reply: count
//! ```

use super::blob::{Blob, behind, blob};
use super::rdma_channel::{Channel, ChannelInfo, RdmaTransform, channel_info, trace_transform};
use super::{FileId, Header};
use crate::fault::PResult;
use crate::trace::{Trace, scope};

const BODY: usize = Header::LEN;

fields! {
    /// The data.
    pub mod f ["[MS-SMB2] 2.2.20"] {
        READ_DATA: Bytes as Data = "smb2.read_data", "Read Data";
        WRITE_DATA: Bytes as Data = "smb2.write_data", "Write Data";
    }
}

header! {
    /// Asks for bytes of a file.
    pub struct ReadRequestFixed [NODE = "rdmascope.smb2.read_request", "Read Request", "[MS-SMB2] 2.2.19"] {
        /// 49.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        /// Preferred offset of the data in the reply: bytes from the reply's header.
        padding: u8 = "smb2.read_padding", "Padding", hex;
        flags: u8 = "smb2.read_flags", "Flags", hex, bits {
            unbuffered: bool & 0x01 = "smb2.read_flags.unbuffered", "Unbuffered";
            compressed: bool & 0x02 = "smb2.read_flags.compressed", "Compressed";
        };
        /// Bytes to read.
        length: le32 = "smb2.read_length", "Read Length", dec;
        /// Offset in the file, in bytes.
        offset: le64 = "smb2.file_offset", "File Offset", dec;
        file_id: guid = "smb2.fid", "File Id";
        /// Fewer bytes than these are a failure.
        minimum_count: le32 = "smb2.min_count", "Min Count", dec;
        channel: le32 = "smb2.channel", "Channel", hex, values Channel::VALUES;
        /// Bytes the client means to read after these.
        remaining_bytes: le32 = "smb2.remaining_bytes", "Remaining Bytes", dec;
        channel_info_offset: le16 = "_", "Channel Info Offset";
        channel_info_length: le16 = "_", "Channel Info Length";
    }
}

header! {
    /// Answers a READ.
    pub struct ReadResponseFixed [NODE = "rdmascope.smb2.read_response", "Read Response", "[MS-SMB2] 2.2.20"] {
        /// 17.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        data_offset: u8 = "_", "Data Offset";
        reserved: bytes[1] as Keep = "smb2.reserved", "Reserved";
        data_length: le32 = "_", "Data Length";
        /// Bytes sent by RDMA Write.
        data_remaining: le32 = "smb2.read_remaining", "Read Remaining", dec;
        /// SMB 3.1.1; reserved before.
        flags: le32 = "rdmascope.smb2.read_response.flags", "Flags", hex, bits {
            rdma_transform: bool & 0x00000001 = "rdmascope.smb2.read_response.flags.rdma_transform", "RDMA transform";
        };
    }
}

header! {
    /// Writes bytes into a file.
    pub struct WriteRequestFixed [NODE = "rdmascope.smb2.write_request", "Write Request", "[MS-SMB2] 2.2.21"] {
        /// 49.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        /// From the header, in bytes.
        data_offset: le16 = "smb2.data_offset", "Data Offset", hex;
        /// Bytes of data in this message; 0 where they go by RDMA.
        length: le32 = "smb2.write_length", "Write Length", dec;
        /// Offset in the file, in bytes.
        offset: le64 = "smb2.file_offset", "File Offset", dec;
        file_id: guid = "smb2.fid", "File Id";
        channel: le32 = "smb2.channel", "Channel", hex, values Channel::VALUES;
        /// Bytes to be fetched by RDMA Read; without RDMA, bytes the client means to write after these.
        remaining_bytes: le32 = "smb2.remaining_bytes", "Remaining Bytes", dec;
        channel_info_offset: le16 = "_", "Channel Info Offset";
        channel_info_length: le16 = "_", "Channel Info Length";
        flags: le32 = "smb2.write.flags", "Write Flags", hex, bits {
            write_through: bool & 0x00000001 = "smb2.write.flags.write_through", "Write through";
            unbuffered: bool & 0x00000002 = "smb2.write.flags.unbuffered", "Unbuffered";
        };
    }
}

header! {
    /// Answers a WRITE.
    pub struct WriteResponseFixed [NODE = "rdmascope.smb2.write_response", "Write Response", "[MS-SMB2] 2.2.22"] {
        /// 17.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        reserved: bytes[2] as Keep = "smb2.reserved", "Reserved";
        /// Bytes written.
        count: le32 = "smb2.write.count", "Write Count", dec;
        /// Should be 0.
        remaining: le32 = "smb2.write.remaining", "Write Remaining", dec;
        /// Should be 0.
        channel_info_offset: le16 = "smb2.channel_info_offset", "Channel Info Offset", dec;
        /// Should be 0.
        channel_info_length: le16 = "smb2.channel_info_length", "Channel Info Length", dec;
    }
}

/// A READ request taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest<'a> {
    /// Fields of fixed size.
    pub fixed: ReadRequestFixed,
    /// The client's memory for the data, over RDMA.
    pub channel: ChannelInfo<'a>,
}

impl ReadRequest<'_> {
    /// FileId of the file.
    pub const fn file(&self) -> FileId {
        FileId(self.fixed.file_id)
    }
}

/// A READ reply taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadResponse<'a> {
    /// Fields of fixed size.
    pub fixed: ReadResponseFixed,
    /// The data that is in the message. Over RDMA there is none, or an RDMA transform.
    pub data: Blob<'a>,
}

impl<'a> ReadResponse<'a> {
    /// The transform that the data sent by RDMA Write went through, where the flags say that there is one.
    pub fn transform(&self) -> Option<RdmaTransform<'a>> {
        if !self.fixed.rdma_transform() {
            return None;
        }
        RdmaTransform::parse(self.data.bytes).ok().map(|(_, transform)| transform)
    }
}

/// A WRITE request taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteRequest<'a> {
    /// Fields of fixed size.
    pub fixed: WriteRequestFixed,
    /// The client's memory with the data, over RDMA.
    pub channel: ChannelInfo<'a>,
    /// The data that is in the message.
    pub data: Blob<'a>,
}

impl WriteRequest<'_> {
    /// FileId of the file.
    pub const fn file(&self) -> FileId {
        FileId(self.fixed.file_id)
    }

    /// Bytes that this request writes: those in the message, or those that the server is to fetch.
    pub const fn payload_length(&self) -> u32 {
        if self.channel.channel.0 == Channel::NONE.0 {
            self.fixed.length
        } else {
            self.fixed.length.saturating_add(self.fixed.remaining_bytes)
        }
    }
}

/// Decodes the body of a READ request; `pdu` begins with its header.
#[inline]
pub fn read_request<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, ReadRequest<'a>> {
    const END: usize = BODY + ReadRequestFixed::LEN;
    scope(ReadRequestFixed::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let (_, fixed) = ReadRequestFixed::parse_flat(i, t)?;
        let channel = channel_info(pdu, END, END - 4, fixed.channel, t);
        // the buffer is at least one byte long, used or not
        let rest = behind(pdu, END, &[&channel.blob]);
        Ok((rest, ReadRequest { fixed, channel }))
    })
}

/// Decodes the body of a READ reply; `pdu` begins with its header.
#[inline]
pub fn read_response<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, ReadResponse<'a>> {
    const END: usize = BODY + ReadResponseFixed::LEN;
    scope(ReadResponseFixed::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let (_, fixed) = ReadResponseFixed::parse_flat(i, t)?;
        let data = blob(pdu, END, (BODY + 2, 1), (BODY + 4, 4), t);
        if fixed.rdma_transform() {
            if T::ON {
                let _ = trace_transform(data.bytes, t);
            }
        } else {
            data.trace(f::READ_DATA, t);
        }
        Ok((behind(pdu, END, &[&data]), ReadResponse { fixed, data }))
    })
}

/// Decodes the body of a WRITE request; `pdu` begins with its header.
#[inline]
pub fn write_request<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, WriteRequest<'a>> {
    const END: usize = BODY + WriteRequestFixed::LEN;
    scope(WriteRequestFixed::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let (_, fixed) = WriteRequestFixed::parse_flat(i, t)?;
        let channel = channel_info(pdu, END, BODY + 40, fixed.channel, t);
        let data = Blob::of(pdu, END, fixed.data_offset.into(), fixed.length);
        if T::ON && !data.inside {
            t.fault(&crate::fault::Fault::length(WriteRequestFixed::length, &i[4..], data.length as usize));
        }
        data.trace(f::WRITE_DATA, t);
        Ok((behind(pdu, END, &[&channel.blob, &data]), WriteRequest { fixed, channel, data }))
    })
}

/// Decodes the body of a WRITE reply; `pdu` begins with its header.
#[inline]
pub fn write_response<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, WriteResponseFixed> {
    WriteResponseFixed::parse(&pdu[BODY.min(pdu.len())..], t)
}
