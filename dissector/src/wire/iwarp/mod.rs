//! iWARP: RDMA over TCP. MPA frames the stream ([`mpa`]), DDP places the bytes ([`ddp`]), RDMAP defines the operations
//! ([`rdmap`]).
pub mod ddp;
pub mod mpa;
pub mod rdmap;
