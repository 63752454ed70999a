//! The extension headers that follow the BTH, by opcode. IBA volume 1, 9.3. Big-endian.

header! {
    /// RDMA Extended Transport Header: which remote memory, and how much of it.
    pub struct Reth [NODE: Bytes = "infiniband.reth", "RDMA Extended Transport Header", "IBA Vol 1, 9.3.3"] {
        virtual_address: be64 = "infiniband.reth.va", "Virtual Address", hex;
        r_key: be32 = "infiniband.reth.r_key", "Remote Key", hex;
        /// In bytes.
        dma_length: be32 = "infiniband.reth.dmalen", "DMA Length", dec;
    }
}

/// The extension headers of one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// Of RDMA Writes and Read Requests.
    pub reth: Option<Reth>,
    /// ACK extended transport header: syndrome in the upper 8 bits, MSN in the lower 24.
    pub aeth: Option<u32>,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// The R_Key to invalidate.
    pub invalidate: Option<u32>,
    /// Datagram: Q_Key and source queue pair.
    pub datagram: Option<(u32, u32)>,
    /// XRC: the shared receive queue.
    pub xrc_srq: Option<u32>,
}
