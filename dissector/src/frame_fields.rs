//! The fields of Wireshark's `frame` protocol: the capture's own knowledge of a frame. Declared below the observers,
//! which fill in some of them themselves; [`crate::wire::frame_fields::tell`] reports the others.

/// Severities as Wireshark numbers them.
const SEVERITIES: crate::field::Values =
    &[(0x10_0000, "Comment"), (0x20_0000, "Chat"), (0x40_0000, "Note"), (0x60_0000, "Warning"), (ERROR, "Error")];
/// See `SEVERITIES`.
pub(crate) const ERROR: u64 = 0x80_0000;

fields! {
    /// The frame and what went wrong in it.
    pub mod f ["pcapng 4.3"] {
        PROTOCOL: Protocol = "frame", "Frame";
        INTERFACE_ID: U32 = "frame.interface_id", "Interface id", dec;
        INTERFACE_NAME: Str = "frame.interface_name", "Interface name";
        TIME: AbsTime = "frame.time", "Arrival Time";
        TIME_UTC: AbsTime [hidden] = "frame.time_utc", "UTC Arrival Time";
        TIME_EPOCH: AbsTime = "frame.time_epoch", "Epoch Arrival Time";
        TIME_DELTA: RelTime = "frame.time_delta", "Time delta from previous captured frame";
        TIME_RELATIVE: RelTime = "frame.time_relative", "Time since first frame";
        NUMBER: U32 = "frame.number", "Frame Number", dec;
        LEN: U32 = "frame.len", "Frame length on the wire", dec;
        CAP_LEN: U32 = "frame.cap_len", "Frame length stored into the capture file", dec;
        PROTOCOLS: Str = "frame.protocols", "Protocols in frame";
        COMMENT: Str = "frame.comment", "Comment";
        /// Columns of the frame's line; an observer adds both when the frame is decoded.
        COL_PROTOCOL: Str = "_ws.col.protocol", "Protocol";
        /// See `COL_PROTOCOL`.
        COL_INFO: Str = "_ws.col.info", "Info";
        /// Present in every frame whose decoding stopped, with the reason as its text.
        MALFORMED: Protocol = "_ws.malformed", "Malformed Packet";
        /// Present in every frame whose decoding stopped, as Wireshark has it: with the reason, and how bad it is.
        EXPERT: None = "_ws.expert", "Expert Info";
        /// See `EXPERT`.
        EXPERT_MESSAGE: Str = "_ws.expert.message", "Message";
        /// See `EXPERT`.
        EXPERT_SEVERITY: U32 = "_ws.expert.severity", "Severity level", dec, values SEVERITIES;
        /// Present in every frame of which the capture has too few bytes to decode it.
        SHORT: Protocol = "_ws.short", "Short Frame";
    }
}
