//! iWARP: RDMA over TCP. MPA frames the stream ([`mpa`]), DDP says where bytes go ([`ddp`]), RDMAP what they do ([`rdmap`]).
pub mod ddp;
pub mod mpa;
pub mod rdmap;
