/* rdmascope: the analysis of storage over RDMA as a library. MIT OR Apache-2.0.
 *
 * Hand over the frames of a capture in order, get what is said of each, and ask for any of them again. One engine serves one thread at a
 * time; several engines are independent of each other. Buffers that are handed out belong to the engine, and stay as they are until its
 * next call.
 *
 * Facts are one flat buffer; all numbers in it are little-endian:
 *
 *   head   u16 layout (1), u8 layer, u8 flags, u32 how many items
 *   item   u16 field, u8 kind, u8 depth, u32 length, value (so many bytes)
 *
 * `field` is a line of rdmascope_fields(), from 0; `depth` nests items as a tree does, parents first. */
#ifndef RDMASCOPE_H
#define RDMASCOPE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface: rdmascope_interface() has to say the same. */
#define RDMASCOPE_INTERFACE 1
/* The layout of facts that this file describes. */
#define RDMASCOPE_LAYOUT 1

/* Kinds of values. */
#define RDMASCOPE_NONE 0     /* nothing: a subtree, or a marker */
#define RDMASCOPE_UNSIGNED 1 /* u64 */
#define RDMASCOPE_SIGNED 2   /* i64 */
#define RDMASCOPE_BYTES 3
#define RDMASCOPE_TEXT 4     /* UTF-8, not ended by a zero, unescaped: it may hold what a peer sent */
#define RDMASCOPE_TIME 5     /* i64 seconds, u32 nanoseconds counted forward from there */
#define RDMASCOPE_APART 6    /* a message for rdmascope_message(): u32 its number in the frame, u32 1 where copies or gaps mislead readers */
#define RDMASCOPE_PLACED 0x80 /* added to a kind: the value begins with u32 offset and u32 length of its bytes in the frame */

/* Flags. */
#define RDMASCOPE_AGAIN 1    /* the packet went out before */
#define RDMASCOPE_MPA 2      /* a TCP segment that carries MPA, the first one of its connection */
#define RDMASCOPE_SYN 4      /* a TCP segment that opens a connection */
#define RDMASCOPE_SETTLED 8  /* findings are as of rdmascope_settle() */
#define RDMASCOPE_FINDING 16 /* there is a finding */
#define RDMASCOPE_DECODED 32 /* there is something that Wireshark leaves undecoded */
#define RDMASCOPE_SAID 64    /* there are items besides messages */
#define RDMASCOPE_NO_MPA 128 /* a TCP segment of port 5445 with bytes in it, where no MPA was found on its connection yet */

/* What functions return. */
#define RDMASCOPE_OK 0
#define RDMASCOPE_INVALID (-1)  /* a null pointer, a size of another version, or keys that cannot be read */
#define RDMASCOPE_UNKNOWN (-2)  /* this frame was not fed, or there is no such message */
#define RDMASCOPE_NOT_KEPT (-3) /* what was said of this frame found no room in memory_max */
#define RDMASCOPE_FAILED (-4)   /* a defect of the engine, which can only be closed now: rdmascope_error() */

typedef struct rdmascope_engine rdmascope_engine;

typedef struct {
    size_t size;           /* sizeof(rdmascope_options) */
    uint64_t memory_max;   /* bytes that are remembered at most; 0: 4 GiB. The state of open connections comes on top, and has limits of its own */
    uint64_t messages_max; /* of these, for messages put together, the oldest of which go first; 0: 64 MiB */
    const char *keys;      /* keys and passwords as in a key file of `rdmascope --keys`, in UTF-8; NULL for none */
    size_t keys_length;
    uint32_t unchecked;    /* 1: do not verify the checksums of RoCE and MPA */
} rdmascope_options;

typedef struct {
    size_t size;         /* sizeof(rdmascope_frame_t) */
    uint64_t number;     /* from 1, ascending */
    int64_t time_ns;     /* ns since the Unix epoch */
    int32_t link_type;   /* LINKTYPE_ of pcap files; -1: to be guessed from the bytes */
    uint32_t wire_length;
    const uint8_t *bytes;
    size_t length;       /* what was captured */
} rdmascope_frame_t;

typedef struct {
    size_t size; /* sizeof(rdmascope_status_t) */
    uint64_t frames, last;
    uint64_t memory;           /* bytes that are remembered */
    uint64_t not_kept;         /* frames of which nothing is remembered, for want of room */
    uint64_t messages_dropped; /* messages that were forgotten, for want of room */
} rdmascope_status_t;

uint32_t rdmascope_interface(void);
const char *rdmascope_version(void);
/* Names and types of the fields of items, as `name<TAB>FT_TYPE<TAB>label`, a line each. */
const char *rdmascope_fields(size_t *length);

/* Begins an analysis; `options` may be NULL. */
int rdmascope_open(const rdmascope_options *options, rdmascope_engine **engine);
/* Frees everything. NULL is fine. */
void rdmascope_close(rdmascope_engine *engine);

/* The next frame. One that was fed before is answered from what was kept. */
int rdmascope_frame(rdmascope_engine *engine, const rdmascope_frame_t *frame, const uint8_t **facts, size_t *length);
/* What is said of a frame that was fed, with what is known by now. */
int rdmascope_facts(rdmascope_engine *engine, uint64_t number, const uint8_t **facts, size_t *length);
/* What rdmascope_facts() says is from now on settled as if nothing more came: certainty and words of findings, findings of whole connections,
 * sessions. `at_end`: the capture is over, and what was not answered never will be. More frames may follow, and this be called again. */
int rdmascope_settle(rdmascope_engine *engine, int at_end);
/* The report of the last rdmascope_settle() in words. */
int rdmascope_report(rdmascope_engine *engine, const char **text, size_t *length);
/* A message that is not in its frame in one piece. */
int rdmascope_message(rdmascope_engine *engine, uint64_t number, uint32_t index, const uint8_t **bytes, size_t *length);
/* The messages of this frame are not needed any more. */
int rdmascope_forget(rdmascope_engine *engine, uint64_t number);
/* What one SMB Direct message says, whatever connection it is of; places are those in its own bytes. */
int rdmascope_smb_direct(rdmascope_engine *engine, const uint8_t *message, size_t message_length, const uint8_t **facts, size_t *length);
int rdmascope_status(rdmascope_engine *engine, rdmascope_status_t *status);
/* Why the last call failed, ended by a zero; empty where none did. */
const char *rdmascope_error(const rdmascope_engine *engine);

#ifdef __cplusplus
}
#endif

#endif
