//! The used part of the C interface of rdma-core: `infiniband/verbs.h`, `rdma/rdma_cma.h`. Names are those of the
//! headers. Inline functions of the headers go through `ibv_context::ops` and `verbs_context` (`library.rs`). If the
//! headers are installed, a test compiles them and compares every size, offset and number with this file.

#![allow(non_camel_case_types, missing_docs)]

use libc::{c_char, c_int, c_uint, c_void, pthread_cond_t, pthread_mutex_t, sockaddr, sockaddr_storage, timespec};

/// A C enum.
pub type c_enum = c_int;
/// A function that is not called from here.
pub type Unused = *mut c_void;

pub const IBV_SYSFS_NAME_MAX: usize = 64;
pub const IBV_SYSFS_PATH_MAX: usize = 256;

#[repr(C)]
pub struct ibv_device {
    pub _ops: [Unused; 2],
    pub node_type: c_enum,
    pub transport_type: c_enum,
    pub name: [c_char; IBV_SYSFS_NAME_MAX],
    pub dev_name: [c_char; IBV_SYSFS_NAME_MAX],
    pub dev_path: [c_char; IBV_SYSFS_PATH_MAX],
    pub ibdev_path: [c_char; IBV_SYSFS_PATH_MAX],
}

pub const IBV_TRANSPORT_IB: c_enum = 0;
pub const IBV_TRANSPORT_IWARP: c_enum = 1;

#[repr(C)]
pub struct ibv_context_ops {
    pub _before_alloc_mw: [Unused; 7],
    pub alloc_mw: Option<unsafe extern "C" fn(pd: *mut ibv_pd, kind: c_enum) -> *mut ibv_mw>,
    pub bind_mw: Unused,
    pub dealloc_mw: Option<unsafe extern "C" fn(mw: *mut ibv_mw) -> c_int>,
    pub _compat_create_cq: Unused,
    pub poll_cq: Option<unsafe extern "C" fn(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int>,
    pub req_notify_cq: Option<unsafe extern "C" fn(cq: *mut ibv_cq, solicited_only: c_int) -> c_int>,
    pub _before_post_send: [Unused; 12],
    pub post_send:
        Option<unsafe extern "C" fn(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int>,
    pub post_recv:
        Option<unsafe extern "C" fn(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int>,
    pub _after_post_recv: [Unused; 5],
}

#[repr(C)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: pthread_mutex_t,
    pub abi_compat: *mut c_void,
}

/// Value of `ibv_context::abi_compat` if the context lies in a [`verbs_context`].
pub const VERBS_ABI_IS_EXTENDED: usize = usize::MAX;

/// It grows at its beginning; `sz` is its size.
#[repr(C)]
pub struct verbs_context {
    pub query_port: Option<
        unsafe extern "C" fn(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr, attr_len: usize) -> c_int,
    >,
    pub _before_query_rt_values: [Unused; 23],
    pub query_rt_values: Option<unsafe extern "C" fn(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int>,
    pub create_cq_ex:
        Option<unsafe extern "C" fn(context: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex>,
    pub priv_: Unused,
    pub query_device_ex: Option<
        unsafe extern "C" fn(
            context: *mut ibv_context,
            input: *const c_void,
            attr: *mut ibv_device_attr_ex,
            attr_size: usize,
        ) -> c_int,
    >,
    pub ibv_destroy_flow: Option<unsafe extern "C" fn(flow: *mut ibv_flow) -> c_int>,
    pub _placeholder2: Unused,
    pub ibv_create_flow: Option<unsafe extern "C" fn(qp: *mut ibv_qp, attr: *mut ibv_flow_attr) -> *mut ibv_flow>,
    pub _before_sz: [Unused; 8],
    pub sz: usize,
    pub context: ibv_context,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_device_attr {
    pub fw_ver: [c_char; 64],
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    pub atomic_cap: c_enum,
    pub max_ee: c_int,
    pub max_rdd: c_int,
    pub max_mw: c_int,
    pub max_raw_ipv6_qp: c_int,
    pub max_raw_ethy_qp: c_int,
    pub max_mcast_grp: c_int,
    pub max_mcast_qp_attach: c_int,
    pub max_total_mcast_qp_attach: c_int,
    pub max_ah: c_int,
    pub max_fmr: c_int,
    pub max_map_per_fmr: c_int,
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    pub max_srq_sge: c_int,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

pub const IBV_DEVICE_MEM_WINDOW_TYPE_2A: c_uint = 1 << 23;
pub const IBV_DEVICE_MEM_WINDOW_TYPE_2B: c_uint = 1 << 24;

/// Its beginning; the call passes the size of the buffer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_device_attr_ex {
    pub orig_attr: ibv_device_attr,
    pub comp_mask: u32,
    pub odp_caps: [u64; 3],
    pub completion_timestamp_mask: u64,
    pub hca_core_clock: u64,
    pub device_cap_flags_ex: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_port_attr {
    pub state: c_enum,
    pub max_mtu: c_enum,
    pub active_mtu: c_enum,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
}

pub const IBV_PORT_ACTIVE: c_enum = 4;
pub const IBV_LINK_LAYER_INFINIBAND: u8 = 1;
pub const IBV_LINK_LAYER_ETHERNET: u8 = 2;

#[repr(C)]
pub struct ibv_pd {
    pub context: *mut ibv_context,
    pub handle: u32,
}

#[repr(C)]
pub struct ibv_mr {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

#[repr(C)]
pub struct ibv_mw {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub rkey: u32,
    pub handle: u32,
    pub kind: c_enum,
}

pub const IBV_MW_TYPE_2: c_enum = 2;

pub const IBV_ACCESS_LOCAL_WRITE: c_int = 1;
pub const IBV_ACCESS_REMOTE_WRITE: c_int = 1 << 1;
pub const IBV_ACCESS_REMOTE_READ: c_int = 1 << 2;
pub const IBV_ACCESS_MW_BIND: c_int = 1 << 4;

#[repr(C)]
pub struct ibv_comp_channel {
    pub context: *mut ibv_context,
    pub fd: c_int,
    pub refcnt: c_int,
}

#[repr(C)]
pub struct ibv_cq {
    pub context: *mut ibv_context,
    pub channel: *mut ibv_comp_channel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub comp_events_completed: u32,
    pub async_events_completed: u32,
}

#[repr(C)]
pub struct ibv_poll_cq_attr {
    pub comp_mask: u32,
}

/// Begins as [`ibv_cq`] does.
#[repr(C)]
pub struct ibv_cq_ex {
    pub base: ibv_cq,
    pub comp_mask: u32,
    pub status: c_enum,
    pub wr_id: u64,
    pub start_poll: Option<unsafe extern "C" fn(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int>,
    pub next_poll: Option<unsafe extern "C" fn(cq: *mut ibv_cq_ex) -> c_int>,
    pub end_poll: Option<unsafe extern "C" fn(cq: *mut ibv_cq_ex)>,
    pub read_opcode: Unused,
    pub read_vendor_err: Option<unsafe extern "C" fn(cq: *mut ibv_cq_ex) -> u32>,
    pub read_byte_len: Option<unsafe extern "C" fn(cq: *mut ibv_cq_ex) -> u32>,
    pub _before_read_completion_ts: [Unused; 7],
    pub read_completion_ts: Option<unsafe extern "C" fn(cq: *mut ibv_cq_ex) -> u64>,
    pub _before_read_completion_wallclock_ns: [Unused; 3],
    pub read_completion_wallclock_ns: Option<unsafe extern "C" fn(cq: *mut ibv_cq_ex) -> u64>,
}

#[repr(C)]
pub struct ibv_cq_init_attr_ex {
    pub cqe: u32,
    pub cq_context: *mut c_void,
    pub channel: *mut ibv_comp_channel,
    pub comp_vector: u32,
    pub wc_flags: u64,
    pub comp_mask: u32,
    pub flags: u32,
    pub parent_domain: *mut ibv_pd,
}

pub const IBV_WC_EX_WITH_BYTE_LEN: u64 = 1 << 0;
pub const IBV_WC_EX_WITH_COMPLETION_TIMESTAMP: u64 = 1 << 7;
pub const IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK: u64 = 1 << 11;

#[repr(C)]
pub struct ibv_values_ex {
    pub comp_mask: u32,
    pub raw_clock: timespec,
}

pub const IBV_VALUES_MASK_RAW_CLOCK: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_wc {
    pub wr_id: u64,
    pub status: c_enum,
    pub opcode: c_enum,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// Of the union, `invalidated_rkey` in host order.
    pub invalidated_rkey: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

pub const IBV_WC_SUCCESS: c_enum = 0;
pub const IBV_WC_LOC_LEN_ERR: c_enum = 1;
pub const IBV_WC_WR_FLUSH_ERR: c_enum = 5;
pub const IBV_WC_REM_INV_REQ_ERR: c_enum = 9;
pub const IBV_WC_REM_ACCESS_ERR: c_enum = 10;
pub const IBV_WC_REM_OP_ERR: c_enum = 11;
pub const IBV_WC_RETRY_EXC_ERR: c_enum = 12;
pub const IBV_WC_RNR_RETRY_EXC_ERR: c_enum = 13;
pub const IBV_WC_RECV: c_enum = 1 << 7;
pub const IBV_WC_WITH_INV: c_uint = 1 << 3;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_qp_cap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

#[repr(C)]
pub struct ibv_qp_init_attr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut c_void,
    pub cap: ibv_qp_cap,
    pub qp_type: c_enum,
    pub sq_sig_all: c_int,
}

pub const IBV_QPT_RC: c_enum = 2;
pub const IBV_QPT_RAW_PACKET: c_enum = 8;

#[repr(C)]
pub struct ibv_qp {
    pub context: *mut ibv_context,
    pub qp_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut c_void,
    pub handle: u32,
    pub qp_num: u32,
    pub state: c_enum,
    pub qp_type: c_enum,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub events_completed: u32,
}

/// `ibv_ah_attr`, which is not used.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_ah_attr {
    pub _grh: [u64; 3],
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_qp_attr {
    pub qp_state: c_enum,
    pub cur_qp_state: c_enum,
    pub path_mtu: c_enum,
    pub path_mig_state: c_enum,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: c_uint,
    pub cap: ibv_qp_cap,
    pub ah_attr: ibv_ah_attr,
    pub alt_ah_attr: ibv_ah_attr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

pub const IBV_QP_STATE: c_int = 1;
pub const IBV_QP_PORT: c_int = 1 << 5;
pub const IBV_QP_PATH_MTU: c_int = 1 << 8;
pub const IBV_QP_RQ_PSN: c_int = 1 << 12;
pub const IBV_QP_SQ_PSN: c_int = 1 << 16;
pub const IBV_QP_DEST_QPN: c_int = 1 << 20;
pub const IBV_QPS_INIT: c_enum = 1;
pub const IBV_QPS_RTR: c_enum = 2;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_mw_bind_info {
    pub mr: *mut ibv_mr,
    pub addr: u64,
    pub length: u64,
    pub mw_access_flags: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_send_wr_rdma {
    pub remote_addr: u64,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_send_wr_wr {
    pub rdma: ibv_send_wr_rdma,
    /// As long as the longest, `atomic`.
    pub _atomic: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_send_wr_bind_mw {
    pub mw: *mut ibv_mw,
    pub rkey: u32,
    pub bind_info: ibv_mw_bind_info,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut ibv_send_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub opcode: c_enum,
    pub send_flags: c_uint,
    /// Of the union, `invalidate_rkey` in host order.
    pub invalidate_rkey: u32,
    pub wr: ibv_send_wr_wr,
    pub qp_type: u32,
    pub bind_mw: ibv_send_wr_bind_mw,
}

pub const IBV_WR_RDMA_WRITE: c_enum = 0;
pub const IBV_WR_SEND: c_enum = 2;
pub const IBV_WR_RDMA_READ: c_enum = 4;
pub const IBV_WR_BIND_MW: c_enum = 8;
pub const IBV_WR_SEND_WITH_INV: c_enum = 9;
pub const IBV_SEND_SIGNALED: c_uint = 1 << 1;
pub const IBV_SEND_SOLICITED: c_uint = 1 << 2;

#[repr(C)]
pub struct ibv_recv_wr {
    pub wr_id: u64,
    pub next: *mut ibv_recv_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
}

#[repr(C)]
pub struct ibv_flow_attr {
    pub comp_mask: u32,
    pub kind: c_enum,
    pub size: u16,
    pub priority: u16,
    pub num_of_specs: u8,
    pub port: u8,
    pub flags: u32,
}

pub const IBV_FLOW_ATTR_SNIFFER: c_enum = 3;

/// Not looked into.
#[repr(C)]
pub struct ibv_flow {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct rdma_event_channel {
    pub fd: c_int,
}

#[repr(C)]
pub struct rdma_cm_id {
    pub verbs: *mut ibv_context,
    pub channel: *mut rdma_event_channel,
    pub context: *mut c_void,
    pub qp: *mut ibv_qp,
    pub route: rdma_route,
    pub ps: c_enum,
    pub port_num: u8,
}

#[repr(C)]
pub struct rdma_route {
    pub src_addr: sockaddr_storage,
    pub dst_addr: sockaddr_storage,
    pub _ibaddr: [u64; 5],
    pub path_rec: *mut c_void,
    pub num_paths: c_int,
}

pub const RDMA_PS_TCP: c_enum = 0x0106;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct rdma_conn_param {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

/// Of the union after `status`, only `param.conn`.
#[repr(C)]
pub struct rdma_cm_event {
    pub id: *mut rdma_cm_id,
    pub listen_id: *mut rdma_cm_id,
    pub event: c_enum,
    pub status: c_int,
    pub conn: rdma_conn_param,
}

pub const RDMA_CM_EVENT_ADDR_RESOLVED: c_enum = 0;
pub const RDMA_CM_EVENT_ADDR_ERROR: c_enum = 1;
pub const RDMA_CM_EVENT_ROUTE_RESOLVED: c_enum = 2;
pub const RDMA_CM_EVENT_ROUTE_ERROR: c_enum = 3;
pub const RDMA_CM_EVENT_CONNECT_REQUEST: c_enum = 4;
pub const RDMA_CM_EVENT_CONNECT_ERROR: c_enum = 6;
pub const RDMA_CM_EVENT_UNREACHABLE: c_enum = 7;
pub const RDMA_CM_EVENT_REJECTED: c_enum = 8;
pub const RDMA_CM_EVENT_ESTABLISHED: c_enum = 9;
pub const RDMA_CM_EVENT_DISCONNECTED: c_enum = 10;
pub const RDMA_CM_EVENT_DEVICE_REMOVAL: c_enum = 11;
pub const RDMA_CM_EVENT_TIMEWAIT_EXIT: c_enum = 15;

/// The functions of libibverbs.so.1 that are called by name.
pub mod ibverbs {
    use super::*;
    pub type get_device_list = unsafe extern "C" fn(num: *mut c_int) -> *mut *mut ibv_device;
    pub type free_device_list = unsafe extern "C" fn(list: *mut *mut ibv_device);
    pub type open_device = unsafe extern "C" fn(device: *mut ibv_device) -> *mut ibv_context;
    pub type close_device = unsafe extern "C" fn(context: *mut ibv_context) -> c_int;
    pub type query_device = unsafe extern "C" fn(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
    /// Fills in the original fields of `ibv_port_attr`: all but `port_cap_flags2`.
    pub type query_port = unsafe extern "C" fn(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int;
    pub type alloc_pd = unsafe extern "C" fn(context: *mut ibv_context) -> *mut ibv_pd;
    pub type dealloc_pd = unsafe extern "C" fn(pd: *mut ibv_pd) -> c_int;
    pub type reg_mr =
        unsafe extern "C" fn(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
    pub type dereg_mr = unsafe extern "C" fn(mr: *mut ibv_mr) -> c_int;
    pub type create_comp_channel = unsafe extern "C" fn(context: *mut ibv_context) -> *mut ibv_comp_channel;
    pub type destroy_comp_channel = unsafe extern "C" fn(channel: *mut ibv_comp_channel) -> c_int;
    pub type create_cq = unsafe extern "C" fn(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: c_int,
    ) -> *mut ibv_cq;
    pub type destroy_cq = unsafe extern "C" fn(cq: *mut ibv_cq) -> c_int;
    pub type get_cq_event = unsafe extern "C" fn(
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void,
    ) -> c_int;
    pub type ack_cq_events = unsafe extern "C" fn(cq: *mut ibv_cq, nevents: c_uint);
    pub type create_qp = unsafe extern "C" fn(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    pub type modify_qp = unsafe extern "C" fn(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
    pub type query_qp = unsafe extern "C" fn(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        mask: c_int,
        init_attr: *mut ibv_qp_init_attr,
    ) -> c_int;
    pub type destroy_qp = unsafe extern "C" fn(qp: *mut ibv_qp) -> c_int;
    pub type wc_status_str = unsafe extern "C" fn(status: c_enum) -> *const c_char;
}

/// The functions of librdmacm.so.1 that are called.
pub mod rdmacm {
    use super::*;
    pub type create_event_channel = unsafe extern "C" fn() -> *mut rdma_event_channel;
    pub type destroy_event_channel = unsafe extern "C" fn(channel: *mut rdma_event_channel);
    pub type create_id = unsafe extern "C" fn(
        channel: *mut rdma_event_channel,
        id: *mut *mut rdma_cm_id,
        context: *mut c_void,
        ps: c_enum,
    ) -> c_int;
    pub type destroy_id = unsafe extern "C" fn(id: *mut rdma_cm_id) -> c_int;
    pub type migrate_id = unsafe extern "C" fn(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int;
    pub type bind_addr = unsafe extern "C" fn(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int;
    pub type resolve_addr =
        unsafe extern "C" fn(id: *mut rdma_cm_id, src: *mut sockaddr, dst: *mut sockaddr, timeout_ms: c_int) -> c_int;
    pub type resolve_route = unsafe extern "C" fn(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int;
    pub type create_qp =
        unsafe extern "C" fn(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> c_int;
    pub type destroy_qp = unsafe extern "C" fn(id: *mut rdma_cm_id);
    pub type connect = unsafe extern "C" fn(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    pub type listen = unsafe extern "C" fn(id: *mut rdma_cm_id, backlog: c_int) -> c_int;
    pub type accept = unsafe extern "C" fn(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    pub type reject =
        unsafe extern "C" fn(id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8) -> c_int;
    pub type disconnect = unsafe extern "C" fn(id: *mut rdma_cm_id) -> c_int;
    pub type get_cm_event =
        unsafe extern "C" fn(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int;
    pub type ack_cm_event = unsafe extern "C" fn(event: *mut rdma_cm_event) -> c_int;
    pub type get_src_port = unsafe extern "C" fn(id: *mut rdma_cm_id) -> u16;
}
