/* A libibverbs and librdmacm without a card, for tests. It is compiled against rdma-core's headers, and so judges the structs that the
 * crate has written down.
 *
 * Devices, by name: "card0" can all; "counter0" has a counter for a clock; "plain0" has no clock and no memory windows; "nocap0" wants a
 * capability; "noraw0" has no raw queue pairs; "noflow0" refuses flows; "old0" is of a library without extended verbs; "closed0" cannot be
 * opened; "broken0" breaks off after three packets. STANDIN_DEVICES=none: there is none; STANDIN_DEVICES=NAME: that one only.
 *
 * A sniffer gets the packets of the pcap file that STANDIN_PCAP names (little-endian, microseconds), or else ten of growing length, the
 * seventh longer than any buffer. Packet n came at 1700000000 s + n ms.
 *
 * Connections join queue pairs of this process. Addresses other than 127.0.0.0/8 are not reached; 127.0.0.2 is on "plain0". Keys,
 * bounds and rights are checked as a card does. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#undef ibv_reg_mr
#undef ibv_query_port
#define U __attribute__((unused))

enum { CARD, COUNTER, PLAIN, NOCAP, NORAW, NOFLOW, OLD, CLOSED, BROKEN, DEVICES };
static const char *names[DEVICES] = { "card0", "counter0", "plain0", "nocap0", "noraw0", "noflow0", "old0", "closed0", "broken0" };
static struct ibv_device devices[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const uint64_t START = 1700000000ull * 1000000000ull;
/* the counter runs at 250 MHz, and is read as if it had begun 1000 s before the first packet */
#define KHZ 250000ull
static uint64_t ticks(uint64_t ns) { return (uint64_t)((unsigned __int128)(ns - START + 1000ull * 1000000000ull) * KHZ / 1000000ull); }

struct packet { uint8_t *bytes; uint32_t len; uint64_t ns; };
struct recv { uint64_t wr_id; struct ibv_sge sge; struct recv *next; };
struct done { struct ibv_wc wc; uint64_t ns; struct done *next; };
struct cq { struct ibv_cq_ex ex; struct done *first, **last; struct done *current; int armed; };
struct qp { struct ibv_qp qp; struct recv *first, **last; struct qp *peer; struct packet *packets; size_t count, at; int sniffs, error; };
struct mr { struct ibv_mr mr; int access, windows, live; struct mr *next; };
struct mw { struct ibv_mw mw; struct mr *mr; uint64_t addr, length; unsigned access; int bound; struct mw *next; };
struct event { struct rdma_cm_event e; uint8_t data[256]; struct event *next; };
struct channel { struct rdma_event_channel c; struct event *first, **last; };
struct id { struct rdma_cm_id id; struct id *peer, *next; int listens, connected; };
static struct mr *mrs;
static struct mw *mws;
static struct id *listeners;

/* keys that differ by 1 to 8 times 0x100, so that nobody guesses the next one; the lock is held */
static uint32_t next_key(void)
{
	static uint32_t key = 0x100, random = 1;
	random = random * 1103515245 + 12345;
	return key += 0x100 * (1 + (random >> 16 & 7));
}

static int kind(struct ibv_device *d) { return (int)(d - devices); }
static void signal_fd(int fd) { uint64_t one = 1; if (write(fd, &one, 8) != 8) abort(); }

/* ---- completions */

static void complete(struct ibv_cq *q, struct ibv_wc wc, uint64_t ns)
{
	struct cq *cq = (struct cq *)q;
	struct done *d = calloc(1, sizeof *d);
	d->wc = wc;
	d->ns = ns;
	*cq->last = d;
	cq->last = &d->next;
	if (cq->armed && q->channel) {
		cq->armed = 0;
		signal_fd(q->channel->fd);
	}
}

static struct recv *take_recv(struct qp *qp)
{
	struct recv *r = qp->first;
	if (r && !(qp->first = r->next)) qp->last = &qp->first;
	return r;
}

/* what the port sees, as far as there are buffers */
static void deliver(struct qp *qp)
{
	while (qp->sniffs && qp->first && qp->at < qp->count) {
		struct packet *p = &qp->packets[qp->at++];
		struct recv *r = take_recv(qp);
		struct ibv_wc wc = { .wr_id = r->wr_id, .opcode = IBV_WC_RECV, .byte_len = p->len, .qp_num = qp->qp.qp_num };
		if (kind(qp->qp.context->device) == BROKEN && qp->at > 3) wc.status = IBV_WC_GENERAL_ERR;
		else if (p->len > r->sge.length) wc.status = IBV_WC_LOC_LEN_ERR;
		else memcpy((void *)(uintptr_t)r->sge.addr, p->bytes, p->len);
		complete(qp->qp.recv_cq, wc, p->ns);
		free(r);
	}
}

static int poll_cq(struct ibv_cq *q, int n, struct ibv_wc *wc)
{
	struct cq *cq = (struct cq *)q;
	int i = 0;
	pthread_mutex_lock(&lock);
	for (struct done *d; i < n && (d = cq->first); free(d)) {
		wc[i++] = d->wc;
		if (!(cq->first = d->next)) cq->last = &cq->first;
	}
	pthread_mutex_unlock(&lock);
	return i;
}

static int req_notify_cq(struct ibv_cq *q, int solicited U)
{
	pthread_mutex_lock(&lock);
	((struct cq *)q)->armed = 1;
	pthread_mutex_unlock(&lock);
	return 0;
}

static int next_poll(struct ibv_cq_ex *q)
{
	struct cq *cq = (struct cq *)q;
	pthread_mutex_lock(&lock);
	free(cq->current);
	if ((cq->current = cq->first)) {
		if (!(cq->first = cq->current->next)) cq->last = &cq->first;
		q->status = cq->current->wc.status;
		q->wr_id = cq->current->wc.wr_id;
	}
	pthread_mutex_unlock(&lock);
	return cq->current ? 0 : ENOENT;
}
static int start_poll(struct ibv_cq_ex *q, struct ibv_poll_cq_attr *attr) { return attr->comp_mask ? EINVAL : next_poll(q); }
static void end_poll(struct ibv_cq_ex *q) { struct cq *cq = (struct cq *)q; free(cq->current); cq->current = NULL; }
static uint32_t read_byte_len(struct ibv_cq_ex *q) { return ((struct cq *)q)->current->wc.byte_len; }
static uint64_t read_ts(struct ibv_cq_ex *q) { return ticks(((struct cq *)q)->current->ns); }
static uint64_t read_wall(struct ibv_cq_ex *q) { return ((struct cq *)q)->current->ns; }

static struct cq *new_cq(struct ibv_context *context, struct ibv_comp_channel *channel)
{
	struct cq *cq = calloc(1, sizeof *cq);
	cq->ex.context = context;
	cq->ex.channel = channel;
	cq->last = &cq->first;
	return cq;
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	uint64_t clock = kind(context->device) == COUNTER ? IBV_WC_EX_WITH_COMPLETION_TIMESTAMP : IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	if (attr->comp_mask || (attr->wc_flags & ~(clock | IBV_WC_EX_WITH_BYTE_LEN))) { errno = EOPNOTSUPP; return NULL; }
	struct cq *cq = new_cq(context, attr->channel);
	cq->ex.start_poll = start_poll;
	cq->ex.next_poll = next_poll;
	cq->ex.end_poll = end_poll;
	cq->ex.read_byte_len = read_byte_len;
	cq->ex.read_completion_ts = read_ts;
	cq->ex.read_completion_wallclock_ns = read_wall;
	return &cq->ex;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context U, struct ibv_comp_channel *channel, int vector U)
{
	if (cqe < 1) { errno = EINVAL; return NULL; }
	return (struct ibv_cq *)new_cq(context, channel);
}
int ibv_destroy_cq(struct ibv_cq *cq) { free(cq); return 0; }
int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq U, void **context U)
{
	uint64_t n;
	return read(channel->fd, &n, 8) == 8 ? 0 : -1;
}
void ibv_ack_cq_events(struct ibv_cq *cq U, unsigned n U) {}
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct ibv_comp_channel *c = calloc(1, sizeof *c);
	c->context = context;
	c->fd = eventfd(0, EFD_SEMAPHORE);
	return c;
}
int ibv_destroy_comp_channel(struct ibv_comp_channel *c) { close(c->fd); free(c); return 0; }
const char *ibv_wc_status_str(enum ibv_wc_status status) { return status == IBV_WC_REM_ACCESS_ERR ? "remote access error" : "stand-in status"; }

/* ---- memory */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) { struct ibv_pd *pd = calloc(1, sizeof *pd); pd->context = context; return pd; }
int ibv_dealloc_pd(struct ibv_pd *pd)
{
	int busy = 0;
	pthread_mutex_lock(&lock);
	for (struct mr *m = mrs; m; m = m->next) busy |= m->live && m->mr.pd == pd;
	pthread_mutex_unlock(&lock);
	if (busy) { fprintf(stderr, "stand-in: a domain is freed with regions in it\n"); abort(); }
	free(pd);
	return 0;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	if (!length || ((access & IBV_ACCESS_REMOTE_WRITE) && !(access & IBV_ACCESS_LOCAL_WRITE))) { errno = EINVAL; return NULL; }
	struct mr *m = calloc(1, sizeof *m);
	pthread_mutex_lock(&lock);
	uint32_t key = next_key();
	m->mr = (struct ibv_mr){ .context = pd->context, .pd = pd, .addr = addr, .length = length, .lkey = key, .rkey = key };
	m->access = access;
	m->live = 1;
	m->next = mrs;
	mrs = m;
	pthread_mutex_unlock(&lock);
	return &m->mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct mr *m = (struct mr *)mr;
	if (m->windows) return EBUSY;
	pthread_mutex_lock(&lock);
	m->live = 0; /* never freed: a key that is used too late is to be found out */
	pthread_mutex_unlock(&lock);
	return 0;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct mw *w = calloc(1, sizeof *w);
	pthread_mutex_lock(&lock);
	uint32_t key = next_key();
	w->mw = (struct ibv_mw){ .context = pd->context, .pd = pd, .rkey = key, .type = type };
	w->next = mws;
	mws = w;
	pthread_mutex_unlock(&lock);
	return &w->mw;
}

static void unbind(struct mw *w) { if (w->bound) { w->bound = 0; w->mr->windows--; } }

static int dealloc_mw(struct ibv_mw *mw)
{
	pthread_mutex_lock(&lock);
	struct mw *w = (struct mw *)mw;
	unbind(w);
	mw->pd = NULL;
	pthread_mutex_unlock(&lock);
	return 0;
}

/* bytes of ours that a list of one names; NULL where the key does not give them */
static void *local(struct ibv_pd *pd, struct ibv_sge *sge, int access)
{
	for (struct mr *m = mrs; m; m = m->next) {
		uint64_t base = (uintptr_t)m->mr.addr;
		if (m->live && m->mr.lkey == sge->lkey && m->mr.pd == pd && (m->access & access) == access)
			return sge->addr >= base && sge->addr + sge->length <= base + m->mr.length ? (void *)(uintptr_t)sge->addr : NULL;
	}
	return NULL;
}

static void *remote(struct ibv_pd *pd, uint32_t key, uint64_t addr, uint64_t length, unsigned access)
{
	for (struct mw *w = mws; w; w = w->next)
		if (w->bound && w->mw.pd == pd && w->mw.rkey == key)
			return (w->access & access) == access && addr >= w->addr && addr + length <= w->addr + w->length ? (void *)(uintptr_t)addr : NULL;
	for (struct mr *m = mrs; m; m = m->next)
		if (m->live && m->mr.pd == pd && m->mr.rkey == key) {
			uint64_t base = (uintptr_t)m->mr.addr;
			return ((unsigned)m->access & access) == access && addr >= base && addr + length <= base + m->mr.length ? (void *)(uintptr_t)addr : NULL;
		}
	return NULL;
}

/* ---- queue pairs */

static void flush(struct qp *qp)
{
	qp->error = 1;
	for (struct recv *r; (r = take_recv(qp)); free(r))
		complete(qp->qp.recv_cq, (struct ibv_wc){ .wr_id = r->wr_id, .status = IBV_WC_WR_FLUSH_ERR }, 0);
}

/* the work request fails with one status here and ends the peer's queue pair with another, or a flush */
static void fail(struct qp *qp, uint64_t wr_id, enum ibv_wc_status status)
{
	complete(qp->qp.send_cq, (struct ibv_wc){ .wr_id = wr_id, .status = status }, 0);
	flush(qp);
	if (qp->peer) flush(qp->peer);
}

static void carry_out(struct qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_wc wc = { .wr_id = wr->wr_id, .qp_num = qp->qp.qp_num };
	struct ibv_sge *s = wr->num_sge ? wr->sg_list : NULL;
	if (qp->error || !qp->peer) { wc.status = IBV_WC_WR_FLUSH_ERR; complete(qp->qp.send_cq, wc, 0); return; }
	struct ibv_pd *theirs = qp->peer->qp.pd;
	void *here = s ? local(qp->qp.pd, s, wr->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0) : NULL;
	if (s && !here) return fail(qp, wr->wr_id, IBV_WC_LOC_PROT_ERR);
	switch (wr->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_INV: {
		struct recv *r = take_recv(qp->peer);
		if (!r) return fail(qp, wr->wr_id, IBV_WC_RNR_RETRY_EXC_ERR);
		struct ibv_wc in = { .wr_id = r->wr_id, .opcode = IBV_WC_RECV, .byte_len = s->length, .qp_num = qp->peer->qp.qp_num };
		void *there = local(theirs, &r->sge, IBV_ACCESS_LOCAL_WRITE);
		if (!there || r->sge.length < s->length) {
			in.status = IBV_WC_LOC_LEN_ERR;
			complete(qp->peer->qp.recv_cq, in, 0);
			free(r);
			return fail(qp, wr->wr_id, IBV_WC_REM_INV_REQ_ERR);
		}
		if (wr->opcode == IBV_WR_SEND_WITH_INV) {
			struct mw *w = mws;
			while (w && !(w->bound && w->mw.pd == theirs && w->mw.rkey == wr->invalidate_rkey)) w = w->next;
			if (!w) { free(r); return fail(qp, wr->wr_id, IBV_WC_REM_ACCESS_ERR); }
			unbind(w);
			in.wc_flags = IBV_WC_WITH_INV;
			in.invalidated_rkey = wr->invalidate_rkey;
		}
		memcpy(there, here, s->length);
		free(r);
		complete(qp->peer->qp.recv_cq, in, 0);
		break;
	}
	case IBV_WR_RDMA_WRITE: {
		void *there = remote(theirs, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, s->length, IBV_ACCESS_REMOTE_WRITE);
		if (!there) return fail(qp, wr->wr_id, IBV_WC_REM_ACCESS_ERR);
		memcpy(there, here, s->length);
		wc.opcode = IBV_WC_RDMA_WRITE;
		break;
	}
	case IBV_WR_RDMA_READ: {
		void *there = remote(theirs, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, s->length, IBV_ACCESS_REMOTE_READ);
		if (!there) return fail(qp, wr->wr_id, IBV_WC_REM_ACCESS_ERR);
		memcpy(here, there, s->length);
		wc.opcode = IBV_WC_RDMA_READ;
		break;
	}
	case IBV_WR_BIND_MW: {
		struct mw *w = (struct mw *)wr->bind_mw.mw;
		struct mr *m = (struct mr *)wr->bind_mw.bind_info.mr;
		struct ibv_mw_bind_info *b = &wr->bind_mw.bind_info;
		uint64_t base = (uintptr_t)m->mr.addr;
		if (w->bound || w->mw.type != IBV_MW_TYPE_2 || (wr->bind_mw.rkey ^ w->mw.rkey) >> 8 || wr->bind_mw.rkey == w->mw.rkey || !m->live ||
		    !(m->access & IBV_ACCESS_MW_BIND) || ((b->mw_access_flags & IBV_ACCESS_REMOTE_WRITE) && !(m->access & IBV_ACCESS_LOCAL_WRITE)) ||
		    b->addr < base || b->addr + b->length > base + m->mr.length)
			return fail(qp, wr->wr_id, IBV_WC_MW_BIND_ERR);
		w->mw.rkey = wr->bind_mw.rkey;
		w->mr = m;
		w->addr = b->addr;
		w->length = b->length;
		w->access = b->mw_access_flags;
		w->bound = 1;
		m->windows++;
		wc.opcode = IBV_WC_BIND_MW;
		break;
	}
	default:
		return fail(qp, wr->wr_id, IBV_WC_LOC_QP_OP_ERR);
	}
	if (wr->send_flags & IBV_SEND_SIGNALED) complete(qp->qp.send_cq, wc, 0);
}

static int post_send(struct ibv_qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad U)
{
	pthread_mutex_lock(&lock);
	for (; wr; wr = wr->next) carry_out((struct qp *)q, wr);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int post_recv(struct ibv_qp *q, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad U)
{
	struct qp *qp = (struct qp *)q;
	pthread_mutex_lock(&lock);
	for (; wr; wr = wr->next) {
		struct recv *r = calloc(1, sizeof *r);
		r->wr_id = wr->wr_id;
		r->sge = wr->sg_list[0];
		*qp->last = r;
		qp->last = &r->next;
		if (!local(q->pd, &r->sge, IBV_ACCESS_LOCAL_WRITE)) { fprintf(stderr, "stand-in: a receive into memory that is not registered\n"); abort(); }
	}
	if (qp->error) flush(qp);
	deliver(qp);
	pthread_mutex_unlock(&lock);
	return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	int k = kind(pd->context->device);
	if (attr->qp_type == IBV_QPT_RAW_PACKET && (k == NOCAP || k == NORAW)) { errno = k == NOCAP ? EPERM : EOPNOTSUPP; return NULL; }
	struct qp *qp = calloc(1, sizeof *qp);
	static uint32_t number = 0x10;
	qp->qp = (struct ibv_qp){ .context = pd->context, .pd = pd, .send_cq = attr->send_cq, .recv_cq = attr->recv_cq, .qp_num = ++number,
		.qp_type = attr->qp_type };
	qp->last = &qp->first;
	return &qp->qp;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	if (!(mask & IBV_QP_STATE) || (attr->qp_state == IBV_QPS_INIT && (!(mask & IBV_QP_PORT) || attr->port_num != 1))) return EINVAL;
	qp->state = attr->qp_state;
	return 0;
}

/* sequence numbers that nobody ever moves: those that a connection begins with */
int ibv_query_qp(struct ibv_qp *q, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init U)
{
	struct qp *peer = ((struct qp *)q)->peer;
	if (mask & ~(IBV_QP_PATH_MTU | IBV_QP_RQ_PSN | IBV_QP_SQ_PSN | IBV_QP_DEST_QPN) || !peer) return EINVAL;
	attr->path_mtu = IBV_MTU_1024;
	attr->sq_psn = 0xfffff0 + q->qp_num;
	attr->rq_psn = 0xfffff0 + peer->qp.qp_num;
	attr->dest_qp_num = peer->qp.qp_num;
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *q)
{
	struct qp *qp = (struct qp *)q;
	pthread_mutex_lock(&lock);
	if (qp->peer) qp->peer->peer = NULL;
	for (struct recv *r; (r = take_recv(qp)); free(r));
	pthread_mutex_unlock(&lock);
	free(qp);
	return 0;
}

/* ---- flows */

static void load(struct qp *qp)
{
	const char *path = getenv("STANDIN_PCAP");
	FILE *f = path ? fopen(path, "rb") : NULL;
	uint32_t h[4];
	if (!f) {
		qp->count = 10;
		qp->packets = calloc(qp->count, sizeof *qp->packets);
		for (size_t n = 0; n < qp->count; n++) {
			uint32_t len = n == 6 ? 2000000 : 60 + 100 * (uint32_t)n;
			qp->packets[n] = (struct packet){ malloc(len), len, START + n * 1000000 };
			memset(qp->packets[n].bytes, (int)n, len);
		}
		return;
	}
	if (fseek(f, 24, SEEK_SET)) abort();
	while (fread(h, 16, 1, f) == 1) {
		qp->packets = realloc(qp->packets, ++qp->count * sizeof *qp->packets);
		struct packet *p = &qp->packets[qp->count - 1];
		*p = (struct packet){ malloc(h[2]), h[2], h[0] * 1000000000ull + h[1] * 1000ull };
		if (fread(p->bytes, 1, h[2], f) != h[2]) abort();
	}
	fclose(f);
}

static struct ibv_flow *create_flow(struct ibv_qp *q, struct ibv_flow_attr *attr)
{
	struct qp *qp = (struct qp *)q;
	if (kind(q->context->device) == NOFLOW) { errno = EOPNOTSUPP; return NULL; }
	if (attr->type != IBV_FLOW_ATTR_SNIFFER || attr->size != sizeof *attr || attr->num_of_specs || attr->port != 1 || q->state != IBV_QPS_RTR) {
		errno = EINVAL;
		return NULL;
	}
	struct ibv_flow *flow = calloc(1, sizeof *flow);
	flow->context = q->context;
	pthread_mutex_lock(&lock);
	load(qp);
	qp->sniffs = 1;
	deliver(qp);
	pthread_mutex_unlock(&lock);
	return flow;
}
static int destroy_flow(struct ibv_flow *flow) { free(flow); return 0; }

/* ---- devices */

static void fill(struct ibv_context *context, struct ibv_device_attr *a)
{
	memset(a, 0, sizeof *a);
	a->phys_port_cnt = 1;
	a->max_qp_wr = 1024;
	a->max_cqe = 4096;
	a->max_qp_rd_atom = 16;
	a->max_qp_init_rd_atom = 8;
	if (kind(context->device) != PLAIN) a->device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
}
int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *a) { fill(context, a); return 0; }
static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *a, size_t size)
{
	struct ibv_device_attr_ex whole = { .completion_timestamp_mask = kind(context->device) == COUNTER ? UINT64_MAX : 0, .hca_core_clock = KHZ };
	if (input) return EINVAL;
	fill(context, &whole.orig_attr);
	memcpy(a, &whole, size < sizeof whole ? size : sizeof whole);
	return 0;
}
static int query_rt_values(struct ibv_context *context U, struct ibv_values_ex *v)
{
	struct timespec now;
	if (v->comp_mask != IBV_VALUES_MASK_RAW_CLOCK) return EINVAL;
	clock_gettime(CLOCK_REALTIME, &now);
	v->raw_clock = (struct timespec){ 0, (long)ticks((uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec) };
	return 0;
}
static int query_port(struct ibv_context *context U, uint8_t port, struct ibv_port_attr *a, size_t size)
{
	struct ibv_port_attr whole = { .state = IBV_PORT_ACTIVE, .link_layer = IBV_LINK_LAYER_ETHERNET };
	if (port != 1) return EINVAL;
	memcpy(a, &whole, size < sizeof whole ? size : sizeof whole);
	return 0;
}
int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *a)
{
	return query_port(context, port, (struct ibv_port_attr *)a, offsetof(struct ibv_port_attr, port_cap_flags2));
}

struct ibv_device **ibv_get_device_list(int *count)
{
	const char *only = getenv("STANDIN_DEVICES");
	struct ibv_device **list = calloc(DEVICES + 1, sizeof *list);
	int n = 0;
	for (int k = 0; k < DEVICES; k++) {
		strcpy(devices[k].name, names[k]);
		snprintf(devices[k].dev_name, sizeof devices[k].dev_name, "uverbs%d", k);
		devices[k].transport_type = IBV_TRANSPORT_IB;
		if (!only || !strcmp(only, names[k])) list[n++] = &devices[k];
	}
	if (count) *count = n;
	return list;
}
void ibv_free_device_list(struct ibv_device **list) { free(list); }

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	if (kind(device) == CLOSED) { errno = EACCES; return NULL; }
	struct verbs_context *v = calloc(1, sizeof *v);
	int k = kind(device);
	v->sz = sizeof *v;
	v->query_port = query_port;
	v->query_rt_values = query_rt_values;
	v->create_cq_ex = k == PLAIN ? NULL : create_cq_ex;
	v->query_device_ex = query_device_ex;
	v->ibv_create_flow = create_flow;
	v->ibv_destroy_flow = destroy_flow;
	v->context = (struct ibv_context){ .device = device, .abi_compat = k == OLD ? NULL : __VERBS_ABI_IS_EXTENDED };
	v->context.ops.alloc_mw = alloc_mw;
	v->context.ops.dealloc_mw = dealloc_mw;
	v->context.ops.poll_cq = poll_cq;
	v->context.ops.req_notify_cq = req_notify_cq;
	v->context.ops.post_send = post_send;
	v->context.ops.post_recv = post_recv;
	return &v->context;
}
int ibv_close_device(struct ibv_context *context) { free((char *)context - offsetof(struct verbs_context, context)); return 0; }

/* ---- the communication manager */

static void tell(struct id *id, enum rdma_cm_event_type type, int status, struct rdma_cm_id *listen, const struct rdma_conn_param *param)
{
	struct channel *c = (struct channel *)id->id.channel;
	struct event *e = calloc(1, sizeof *e);
	e->e = (struct rdma_cm_event){ .id = &id->id, .listen_id = listen, .event = type, .status = status };
	if (param) {
		e->e.param.conn = *param;
		if (param->private_data_len) memcpy(e->data, param->private_data, param->private_data_len);
		e->e.param.conn.private_data = param->private_data_len ? e->data : NULL;
		/* ours is the other's */
		e->e.param.conn.responder_resources = param->initiator_depth;
		e->e.param.conn.initiator_depth = param->responder_resources;
	}
	*c->last = e;
	c->last = &e->next;
	signal_fd(c->c.fd);
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct channel *c = calloc(1, sizeof *c);
	c->c.fd = eventfd(0, EFD_SEMAPHORE);
	c->last = &c->first;
	return &c->c;
}
void rdma_destroy_event_channel(struct rdma_event_channel *c) { close(c->fd); free(c); }

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct channel *c = (struct channel *)channel;
	uint64_t n;
	if (read(channel->fd, &n, 8) != 8) return -1;
	pthread_mutex_lock(&lock);
	struct event *e = c->first;
	if (!(c->first = e->next)) c->last = &c->first;
	pthread_mutex_unlock(&lock);
	*event = &e->e;
	return 0;
}
int rdma_ack_cm_event(struct rdma_cm_event *event) { free(event); return 0; }

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context, enum rdma_port_space ps)
{
	struct id *id = calloc(1, sizeof *id);
	id->id.channel = channel;
	id->id.context = context;
	id->id.ps = ps;
	*out = &id->id;
	return 0;
}

static void part(struct id *id)
{
	struct id *peer = id->peer;
	if (!id->connected) return;
	id->connected = 0;
	if (id->id.qp) flush((struct qp *)id->id.qp);
	if (peer && peer->connected) tell(peer, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, NULL);
}

int rdma_destroy_id(struct rdma_cm_id *cm)
{
	struct id *id = (struct id *)cm;
	pthread_mutex_lock(&lock);
	part(id);
	if (id->peer) id->peer->peer = NULL;
	for (struct id **l = &listeners; *l; l = &(*l)->next)
		if (*l == id) { *l = id->next; break; }
	pthread_mutex_unlock(&lock);
	free(id); /* its context is shared, and left */
	return 0;
}
int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel) { id->channel = channel; return 0; }

static int port_of(struct sockaddr *a) { return ntohs(((struct sockaddr_in *)a)->sin_port); }

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	if (addr->sa_family != AF_INET) { errno = EADDRNOTAVAIL; return -1; }
	uint8_t first = (uint8_t)(ntohl(((struct sockaddr_in *)addr)->sin_addr.s_addr) >> 24);
	if (first != 127 && first != 0) { errno = ENODEV; return -1; }
	memcpy(&id->route.addr.src_storage, addr, sizeof(struct sockaddr_in));
	return 0;
}
int rdma_listen(struct rdma_cm_id *cm, int backlog U)
{
	struct id *id = (struct id *)cm;
	static int ephemeral = 20000;
	pthread_mutex_lock(&lock);
	if (!port_of(&cm->route.addr.src_addr)) cm->route.addr.src_sin.sin_port = htons((uint16_t)++ephemeral);
	id->listens = 1;
	id->next = listeners;
	listeners = id;
	pthread_mutex_unlock(&lock);
	return 0;
}
__be16 rdma_get_src_port(struct rdma_cm_id *id) { return id->route.addr.src_sin.sin_port; }

int rdma_resolve_addr(struct rdma_cm_id *cm, struct sockaddr *src U, struct sockaddr *dst, int timeout U)
{
	uint32_t ip = dst->sa_family == AF_INET ? ntohl(((struct sockaddr_in *)dst)->sin_addr.s_addr) : 0;
	pthread_mutex_lock(&lock);
	memcpy(&cm->route.addr.dst_storage, dst, sizeof(struct sockaddr_in));
	if (ip >> 24 != 127) tell((struct id *)cm, RDMA_CM_EVENT_ADDR_ERROR, -ENODEV, NULL, NULL);
	else {
		ibv_free_device_list(ibv_get_device_list(NULL));
		cm->verbs = ibv_open_device(&devices[(ip & 0xff) == 2 ? PLAIN : CARD]);
		cm->route.addr.src_sin = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001) };
		tell((struct id *)cm, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, NULL);
	}
	pthread_mutex_unlock(&lock);
	return 0;
}
int rdma_resolve_route(struct rdma_cm_id *cm, int timeout U)
{
	pthread_mutex_lock(&lock);
	tell((struct id *)cm, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, NULL);
	pthread_mutex_unlock(&lock);
	return 0;
}
int rdma_create_qp(struct rdma_cm_id *cm, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	cm->qp = ibv_create_qp(pd, attr);
	return cm->qp ? 0 : -1;
}
void rdma_destroy_qp(struct rdma_cm_id *cm) { ibv_destroy_qp(cm->qp); cm->qp = NULL; }

int rdma_connect(struct rdma_cm_id *cm, struct rdma_conn_param *param)
{
	struct id *id = (struct id *)cm, *l, *other;
	pthread_mutex_lock(&lock);
	for (l = listeners; l && port_of(&l->id.route.addr.src_addr) != port_of(&cm->route.addr.dst_addr);) l = l->next;
	if (!l) tell(id, RDMA_CM_EVENT_REJECTED, 8, NULL, NULL);
	else {
		rdma_create_id(l->id.channel, (struct rdma_cm_id **)&other, NULL, RDMA_PS_TCP);
		other->id.verbs = cm->verbs;
		other->id.route.addr.src_sin = cm->route.addr.dst_sin;
		other->id.route.addr.dst_sin = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(40000), .sin_addr.s_addr = htonl(0x7f000001) };
		other->peer = id;
		id->peer = other;
		tell(other, RDMA_CM_EVENT_CONNECT_REQUEST, 0, &l->id, param);
	}
	pthread_mutex_unlock(&lock);
	return 0;
}
int rdma_accept(struct rdma_cm_id *cm, struct rdma_conn_param *param)
{
	struct id *id = (struct id *)cm;
	pthread_mutex_lock(&lock);
	if (!id->peer || !id->peer->id.qp) { pthread_mutex_unlock(&lock); errno = EINVAL; return -1; }
	((struct qp *)cm->qp)->peer = (struct qp *)id->peer->id.qp;
	((struct qp *)id->peer->id.qp)->peer = (struct qp *)cm->qp;
	id->connected = id->peer->connected = 1;
	tell(id->peer, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, param);
	tell(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, NULL);
	pthread_mutex_unlock(&lock);
	return 0;
}
int rdma_reject(struct rdma_cm_id *cm, const void *data U, uint8_t len U)
{
	struct id *id = (struct id *)cm;
	pthread_mutex_lock(&lock);
	if (id->peer) tell(id->peer, RDMA_CM_EVENT_REJECTED, 28, NULL, NULL);
	pthread_mutex_unlock(&lock);
	return 0;
}
int rdma_disconnect(struct rdma_cm_id *cm)
{
	pthread_mutex_lock(&lock);
	part((struct id *)cm);
	pthread_mutex_unlock(&lock);
	return 0;
}
