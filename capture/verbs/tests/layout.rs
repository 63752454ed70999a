//! The structs and numbers of `sys.rs` against the headers of the rdma-core that is installed.

mod common;

use rdmascope_verbs::sys;
use std::fmt::Write;
use std::mem::offset_of;
use std::process::Command;

/// A C expression, and its value here.
struct Facts(Vec<(String, u64)>);

impl Facts {
    fn number(&mut self, name: &str, value: u64) {
        self.0.push((format!("(unsigned long long)({name})"), value));
    }
}

macro_rules! layout {
    ($facts:ident, $struct:ident = $c:literal: $($member:ident = $cm:literal,)*) => {
        $($facts.0.push((format!("offsetof({}, {})", $c, $cm), offset_of!(sys::$struct, $member) as u64));)*
    };
}

macro_rules! sizes {
    ($facts:ident: $($struct:ident)*) => {
        $($facts.0.push((format!("sizeof(struct {})", stringify!($struct)), size_of::<sys::$struct>() as u64));)*
    };
}

macro_rules! members {
    ($facts:ident, $struct:ident: $($member:ident)*) => {
        $($facts.0.push((
            format!("offsetof(struct {}, {})", stringify!($struct), stringify!($member)),
            offset_of!(sys::$struct, $member) as u64,
        ));)*
    };
}

macro_rules! numbers {
    ($facts:ident: $($name:ident)*) => {
        $($facts.number(stringify!($name), sys::$name as u64);)*
    };
}

fn facts() -> Facts {
    let mut f = Facts(Vec::new());
    sizes!(f: ibv_device ibv_context_ops ibv_context verbs_context ibv_device_attr ibv_port_attr ibv_pd ibv_mr ibv_mw ibv_comp_channel
        ibv_cq ibv_poll_cq_attr ibv_cq_ex ibv_cq_init_attr_ex ibv_values_ex ibv_wc ibv_qp_cap ibv_qp_init_attr ibv_qp ibv_ah_attr
        ibv_qp_attr ibv_sge ibv_mw_bind_info ibv_send_wr ibv_recv_wr ibv_flow_attr rdma_event_channel rdma_route rdma_conn_param);
    members!(f, ibv_device: node_type transport_type name dev_name dev_path ibdev_path);
    members!(f, ibv_context_ops: alloc_mw bind_mw dealloc_mw poll_cq req_notify_cq post_send post_recv);
    members!(f, ibv_context: device ops cmd_fd async_fd num_comp_vectors mutex abi_compat);
    members!(f, verbs_context: query_port query_rt_values create_cq_ex query_device_ex ibv_destroy_flow ibv_create_flow sz context);
    members!(f, ibv_device_attr: fw_ver node_guid max_mr_size vendor_id max_qp max_qp_wr device_cap_flags max_cqe max_qp_rd_atom
        max_qp_init_rd_atom atomic_cap max_mw max_pkeys local_ca_ack_delay phys_port_cnt);
    members!(f, ibv_device_attr_ex: orig_attr comp_mask odp_caps completion_timestamp_mask hca_core_clock device_cap_flags_ex);
    members!(f, ibv_port_attr: state max_msg_sz lid link_layer flags port_cap_flags2);
    members!(f, ibv_pd: context handle);
    members!(f, ibv_mr: context pd addr length handle lkey rkey);
    members!(f, ibv_mw: context pd rkey handle);
    members!(f, ibv_comp_channel: context fd refcnt);
    members!(f, ibv_cq: context channel cq_context handle cqe mutex cond comp_events_completed async_events_completed);
    members!(f, ibv_cq_ex: comp_mask status wr_id start_poll next_poll end_poll read_opcode read_vendor_err read_byte_len
        read_completion_ts read_completion_wallclock_ns);
    members!(f, ibv_cq_init_attr_ex: cqe cq_context channel comp_vector wc_flags comp_mask flags parent_domain);
    members!(f, ibv_values_ex: comp_mask raw_clock);
    members!(f, ibv_wc: wr_id status opcode vendor_err byte_len invalidated_rkey qp_num src_qp wc_flags pkey_index slid sl dlid_path_bits);
    members!(f, ibv_qp_cap: max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data);
    members!(f, ibv_qp_init_attr: qp_context send_cq recv_cq srq cap qp_type sq_sig_all);
    members!(f, ibv_qp: context qp_context pd send_cq recv_cq srq handle qp_num state qp_type mutex cond events_completed);
    members!(f, ibv_qp_attr: qp_state cur_qp_state path_mtu qkey rq_psn sq_psn dest_qp_num qp_access_flags cap ah_attr alt_ah_attr pkey_index port_num rate_limit);
    members!(f, ibv_sge: addr length lkey);
    members!(f, ibv_mw_bind_info: mr addr length mw_access_flags);
    members!(f, ibv_send_wr: wr_id next sg_list num_sge opcode send_flags invalidate_rkey wr qp_type bind_mw);
    layout!(f, ibv_send_wr_rdma = "__typeof__(((struct ibv_send_wr *)0)->wr.rdma)": remote_addr = "remote_addr", rkey = "rkey",);
    layout!(f, ibv_send_wr_bind_mw = "__typeof__(((struct ibv_send_wr *)0)->bind_mw)": mw = "mw", rkey = "rkey", bind_info = "bind_info",);
    members!(f, ibv_recv_wr: wr_id next sg_list num_sge);
    members!(f, ibv_flow_attr: comp_mask size priority num_of_specs port flags);
    layout!(f, ibv_flow_attr = "struct ibv_flow_attr": kind = "type",);
    members!(f, rdma_event_channel: fd);
    members!(f, rdma_cm_id: verbs channel context qp route ps port_num);
    layout!(f, rdma_route = "struct rdma_route": src_addr = "addr.src_storage", dst_addr = "addr.dst_storage", path_rec = "path_rec",
        num_paths = "num_paths",);
    members!(f, rdma_conn_param: private_data private_data_len responder_resources initiator_depth flow_control retry_count
        rnr_retry_count srq qp_num);
    members!(f, rdma_cm_event: id listen_id event status);
    layout!(f, rdma_cm_event = "struct rdma_cm_event": conn = "param.conn",);
    numbers!(f: IBV_SYSFS_NAME_MAX IBV_SYSFS_PATH_MAX IBV_TRANSPORT_IB IBV_TRANSPORT_IWARP IBV_DEVICE_MEM_WINDOW_TYPE_2A
        IBV_DEVICE_MEM_WINDOW_TYPE_2B IBV_PORT_ACTIVE IBV_LINK_LAYER_INFINIBAND IBV_LINK_LAYER_ETHERNET IBV_MW_TYPE_2
        IBV_ACCESS_LOCAL_WRITE IBV_ACCESS_REMOTE_WRITE IBV_ACCESS_REMOTE_READ IBV_ACCESS_MW_BIND IBV_WC_EX_WITH_BYTE_LEN
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK IBV_VALUES_MASK_RAW_CLOCK IBV_WC_SUCCESS
        IBV_WC_LOC_LEN_ERR IBV_WC_WR_FLUSH_ERR IBV_WC_REM_INV_REQ_ERR IBV_WC_REM_ACCESS_ERR IBV_WC_RETRY_EXC_ERR IBV_WC_RNR_RETRY_EXC_ERR
        IBV_WC_RECV IBV_WC_WITH_INV IBV_QPT_RC IBV_QPT_RAW_PACKET IBV_QP_STATE IBV_QP_PORT IBV_QP_PATH_MTU IBV_QP_RQ_PSN
        IBV_QP_SQ_PSN IBV_QP_DEST_QPN IBV_WC_REM_INV_REQ_ERR IBV_WC_REM_OP_ERR IBV_QPS_INIT IBV_QPS_RTR IBV_WR_RDMA_WRITE
        IBV_WR_SEND IBV_WR_RDMA_READ IBV_WR_BIND_MW IBV_WR_SEND_WITH_INV IBV_SEND_SIGNALED IBV_SEND_SOLICITED IBV_FLOW_ATTR_SNIFFER
        RDMA_PS_TCP RDMA_CM_EVENT_ADDR_RESOLVED RDMA_CM_EVENT_ADDR_ERROR RDMA_CM_EVENT_ROUTE_RESOLVED RDMA_CM_EVENT_ROUTE_ERROR
        RDMA_CM_EVENT_CONNECT_REQUEST RDMA_CM_EVENT_CONNECT_ERROR RDMA_CM_EVENT_UNREACHABLE RDMA_CM_EVENT_REJECTED
        RDMA_CM_EVENT_ESTABLISHED RDMA_CM_EVENT_DISCONNECTED RDMA_CM_EVENT_DEVICE_REMOVAL RDMA_CM_EVENT_TIMEWAIT_EXIT);
    f.number("__VERBS_ABI_IS_EXTENDED", sys::VERBS_ABI_IS_EXTENDED as u64);
    f
}

#[test]
fn structs_and_numbers_are_those_of_the_headers() {
    if !common::can_build() {
        return;
    }
    let facts = facts();
    let mut c = String::from(
        "#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n#include <stddef.h>\n#include <stdio.h>\nint \
            main(void) {\n",
    );
    for (expression, _) in &facts.0 {
        writeln!(c, "printf(\"%llu\\n\", (unsigned long long)({expression}));").unwrap();
    }
    c.push_str("return 0; }\n");
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    std::fs::write(&source, c).unwrap();
    let built = Command::new("cc").arg(&source).arg("-o").arg(&program).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let output = Command::new(&program).output().unwrap();
    let theirs: Vec<u64> = String::from_utf8(output.stdout).unwrap().lines().map(|l| l.parse().unwrap()).collect();
    assert_eq!(theirs.len(), facts.0.len());
    let wrong: Vec<String> = facts
        .0
        .iter()
        .zip(theirs)
        .filter(|((_, ours), theirs)| ours != theirs)
        .map(|((expression, ours), theirs)| format!("{expression} is {theirs} in the headers, {ours} here"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(facts.0.len() > 250, "only {} compared", facts.0.len());
}
