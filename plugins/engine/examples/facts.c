/* Prints what rdmascope says of the frames of a pcap file, last frame first, as of the end of the capture.
 * cc -I../include facts.c -o facts -L../../../target/release -lrdmascope_engine && ./facts trace.pcap */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rdmascope.h"

static uint64_t little(const uint8_t *at, int n)
{
    uint64_t value = 0;
    while (n-- > 0)
        value = value << 8 | at[n];
    return value;
}

static void die(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* The name of a field: the beginning of a line. */
static void print_name(unsigned field)
{
    size_t length;
    const char *line = rdmascope_fields(&length), *end = line + length;
    while (field-- > 0 && line < end)
        line = (const char *)memchr(line, '\n', end - line) + 1;
    printf("%.*s", (int)strcspn(line, "\t"), line);
}

static void print_facts(uint64_t number, const uint8_t *facts, size_t length)
{
    const uint8_t *at = facts + 8, *end = facts + length;
    while (end - at >= 8) {
        unsigned field = (unsigned)little(at, 2), kind = at[2];
        size_t n = (size_t)little(at + 4, 4);
        const uint8_t *value = at + 8;
        at = value + n;
        if (kind & RDMASCOPE_PLACED)
            value += 8, n -= 8;
        printf("%" PRIu64 " ", number);
        print_name(field);
        switch (kind & ~RDMASCOPE_PLACED) {
        case RDMASCOPE_UNSIGNED: printf(" %" PRIu64, little(value, 8)); break;
        case RDMASCOPE_SIGNED: printf(" %" PRId64, (int64_t)little(value, 8)); break;
        case RDMASCOPE_TIME: printf(" %" PRId64 ".%09" PRIu64, (int64_t)little(value, 8), little(value + 8, 4)); break;
        case RDMASCOPE_TEXT: printf(" %.*s", (int)n, value); break;
        case RDMASCOPE_BYTES: printf(" %zu bytes", n); break;
        case RDMASCOPE_APART: printf(" message %" PRIu64, little(value, 4)); break;
        }
        putchar('\n');
    }
}

int main(int argc, char **argv)
{
    uint8_t head[24], record[16];
    rdmascope_engine *engine;
    const uint8_t *facts;
    size_t length;
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (!file || fread(head, sizeof head, 1, file) != 1 || little(head, 4) != 0xa1b2c3d4)
        die("usage: facts FILE (a pcap file with microseconds, little-endian)");
    if (rdmascope_interface() != RDMASCOPE_INTERFACE || rdmascope_open(NULL, &engine) != RDMASCOPE_OK)
        die("another version of the engine");
    uint64_t number = 0;
    while (fread(record, sizeof record, 1, file) == 1) {
        size_t captured = (size_t)little(record + 8, 4);
        uint8_t *bytes = malloc(captured + 1);
        if (!bytes || fread(bytes, 1, captured, file) != captured)
            die("the file ends within a frame");
        rdmascope_frame_t frame = { sizeof frame, ++number, (int64_t)(little(record, 4) * 1000000 + little(record + 4, 4)) * 1000,
                                    (int32_t)little(head + 20, 2), (uint32_t)little(record + 12, 4), bytes, captured };
        if (rdmascope_frame(engine, &frame, &facts, &length) != RDMASCOPE_OK)
            die(rdmascope_error(engine));
        free(bytes);
    }
    rdmascope_settle(engine, 1);
    for (; number > 0; number--) {
        if (rdmascope_facts(engine, number, &facts, &length) != RDMASCOPE_OK)
            die(rdmascope_error(engine));
        print_facts(number, facts, length);
    }
    rdmascope_close(engine);
    fclose(file);
    return 0;
}
