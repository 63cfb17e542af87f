/* Random messages through `take` and `fill` of the native edge, with buffers of exactly the sizes that `take` tells: built with the
   address and undefined-behaviour sanitizers, a byte written or read past an end ends the run. What was filled is compared
   with what was made, and every message must be freed exactly once. `edge_fuzz SEED ROUNDS`. */

#include "edge.c"

#include <stdio.h>
#include <stdlib.h>

#define CHECK(x) \
  do { if (!(x)) { fprintf(stderr, "round %ld: not so: %s (line %d)\n", round_number, #x, __LINE__); exit(1); } } while (0)

enum { MOST = 300, TOPICS = 4, NO_MORE = -156, BROKEN = -199, BEFORE = 24 };

typedef struct {
  char *name; /* as librdkafka keeps them: value's size, name's size, value; from here on: name, NUL, value, NUL */
  size_t name_size, value_size;
  int has_value;
} header;

typedef struct {
  int64_t millis;
  int kind, headers_error, header_count, freed;
  header *headers;
} extra;

static long round_number;
static message made[MOST];
static long made_count, handed_out;
static char topic_names[TOPICS][TOPIC_BYTES];

static uint64_t state;
static uint64_t roll(uint64_t n) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return n ? state % n : 0;
}

/* Batches of format 2 have a leader epoch; of older ones nothing may be read past a value. */
static int32_t fake_leader_epoch(const message *m) { return (int32_t)(m->offset % 3) - 1; }

static uint8_t *bytes(size_t n) {
  uint8_t *b = malloc(n ? n : 1);
  for (size_t i = 0; i < n; i++) b[i] = (uint8_t)roll(256);
  return b;
}

static long fake_consume(void *queue, int timeout, message **out, size_t size) {
  long i;
  (void)queue, (void)timeout;
  for (i = 0; i < (long)size && handed_out < made_count; i++) out[i] = &made[handed_out++];
  return i;
}
static int64_t fake_timestamp(const message *m, int *kind) {
  *kind = ((extra *)m->private_data)->kind;
  return ((extra *)m->private_data)->millis;
}
static int fake_headers(const message *m, void **headers) {
  extra *e = m->private_data;
  if (e->headers_error) return e->headers_error;
  if (!e->header_count) return NO_HEADERS;
  *headers = e;
  return 0;
}
static int fake_header(const void *headers, size_t i, const char **name, const void **value, size_t *size) {
  const extra *e = headers;
  if (i >= (size_t)e->header_count) return NO_MORE;
  *name = e->headers[i].name;
  *value = e->headers[i].has_value ? e->headers[i].name + e->headers[i].name_size + 1 : NULL;
  *size = e->headers[i].value_size;
  return 0;
}
static const char *fake_topic_name(const void *topic) { return topic; }
static void fake_destroy(message *m) {
  extra *e = m->private_data;
  CHECK(!e->freed);
  e->freed = 1;
}

static void make(void) {
  made_count = (long)roll(MOST + 1);
  for (long i = 0; i < made_count; i++) {
    extra *e = calloc(1, sizeof *e);
    message *m = &made[i];
    memset(m, 0, sizeof *m);
    m->private_data = e;
    m->err = roll(9) ? 0 : -191 - (int)roll(3);
    m->topic = m->err && !roll(4) ? NULL : topic_names[roll(roll(3) ? 1 : TOPICS)];
    m->partition = (int32_t)roll(3);
    m->offset = (int64_t)roll(1u << 30);
    if (roll(3)) m->key = bytes(m->key_size = (size_t)roll(30));
    e->millis = (int64_t)roll(1u << 31) - 5;
    e->kind = (int)roll(3);
    e->headers_error = roll(30) ? 0 : BROKEN;
    e->header_count = roll(3) ? 0 : (int)roll(6);
    if (roll(4)) {
      int counted = fake_leader_epoch(m) >= 0; /* then the number of headers follows the value, but an empty one is "" */
      m->value_size = (size_t)roll(m->err ? 600 : roll(5) ? 40 : 4000);
      m->value = bytes(m->value_size + (size_t)counted);
      if (counted) m->value[m->value_size] = m->value_size ? (uint8_t)(e->headers_error ? 255 : 2 * e->header_count) : 0;
    }
    e->headers = calloc((size_t)e->header_count + 1, sizeof(header));
    for (int h = 0; h < e->header_count; h++) {
      header *x = &e->headers[h];
      x->name_size = (size_t)roll(12);
      x->has_value = roll(4) != 0;
      x->value_size = x->has_value ? (size_t)roll(20) : 0;
      size_t sizes[2] = {x->value_size, x->name_size};
      uint8_t *b = bytes(BEFORE + x->name_size + x->value_size + 2);
      x->name = (char *)b + BEFORE;
      x->name[x->name_size] = 0;
      const void *value = x->has_value ? x->name + x->name_size + 1 : NULL;
      memcpy(b, sizes, sizeof sizes);
      memcpy(b + sizeof sizes, &value, sizeof value);
    }
  }
}

static void discard(void) {
  for (long i = 0; i < made_count; i++) {
    extra *e = made[i].private_data;
    CHECK(e->freed || i >= handed_out);
    for (int h = 0; h < e->header_count; h++) free(e->headers[h].name - BEFORE);
    free(e->headers);
    free(e);
    free(made[i].value);
    free(made[i].key);
  }
}

static void *zeros(int64_t n) { return calloc((size_t)(n > 0 ? n : 1), 1); }
static int bit(const uint8_t *bits, int64_t i) { return bits[i >> 3] >> (i & 7) & 1; }

static void compare(const columns *c, const sizes *s, message **taken, long count) {
  int64_t row = 0, header_at = 0, error = 0, run = -1, bad = 0;
  for (long i = 0; i < count; i++) {
    message *m = taken[i];
    extra *e = m->private_data;
    const char *topic = m->topic ? m->topic : "";
    if (m->err) {
      CHECK(c->errors[6 * error] == m->err && c->errors[6 * error + 3] == m->offset);
      CHECK(!strcmp(c->topics + c->errors[6 * error + 1] * TOPIC_BYTES, topic));
      CHECK(!m->value || !memcmp(c->error_texts + error * ERROR_BYTES, m->value, (size_t)c->errors[6 * error + 4]));
      CHECK(c->errors[6 * error + 5] == row);
      error++;
      continue;
    }
    if (run + 1 < s->runs && c->runs[6 * (run + 1) + 2] == row) run++;
    CHECK(run >= 0 && !strcmp(c->topics + c->runs[6 * run] * TOPIC_BYTES, topic) && c->runs[6 * run + 1] == m->partition && c->runs[6 * run + 5] == fake_leader_epoch(m));
    CHECK(c->partition[row] == m->partition && c->offset[row] == m->offset && c->millis[row] == e->millis && c->kind[row] == e->kind);
    CHECK((size_t)(c->key_ends[row + 1] - c->key_ends[row]) == (m->key ? m->key_size : 0));
    CHECK((size_t)(c->value_ends[row + 1] - c->value_ends[row]) == (m->value ? m->value_size : 0));
    CHECK(!m->key || !memcmp(c->keys + c->key_ends[row], m->key, m->key_size));
    CHECK(!m->value || !memcmp(c->values + c->value_ends[row], m->value, m->value_size));
    CHECK((c->key_valid ? bit(c->key_valid, row) : 1) == (m->key != NULL));
    CHECK((c->value_valid ? bit(c->value_valid, row) : 1) == (m->value != NULL));
    if (e->headers_error) CHECK(c->bad_headers[bad++] == row);
    int there = e->headers_error ? 0 : e->header_count;
    if (s->headers) {
      CHECK(c->header_ends[row + 1] - c->header_ends[row] == there && bit(c->header_valid, row) == (there > 0));
      for (int h = 0; h < there; h++, header_at++) {
        header *x = &e->headers[h];
        CHECK((size_t)(c->name_ends[header_at + 1] - c->name_ends[header_at]) == x->name_size);
        CHECK(!memcmp(c->names + c->name_ends[header_at], x->name, x->name_size));
        CHECK((size_t)(c->header_value_ends[header_at + 1] - c->header_value_ends[header_at]) == x->value_size);
        CHECK(!x->value_size || !memcmp(c->header_values + c->header_value_ends[header_at], x->name + x->name_size + 1, x->value_size));
        CHECK((c->header_value_valid ? bit(c->header_value_valid, header_at) : 1) == x->has_value);
      }
    }
    row++;
  }
  CHECK(row == s->records && error == s->errors && header_at == s->headers && bad == s->bad_headers && run + 1 == s->runs);
}

static void play(const library *lib) {
  message *taken[MOST] = {0};
  while (handed_out < made_count) {
    sizes s;
    columns c;
    long count = take(lib, NULL, 0, 1 + (long)roll(MOST), (int64_t)roll(20000) + 1, 1 + (long)roll(64), taken, &s);
    CHECK(count > 0);
    if (!roll(10)) {
      drop(lib, taken, count);
      drop(lib, taken, count); /* nothing lies there any more */
      continue;
    }
    message *were[MOST];
    memcpy(were, taken, sizeof were);
    memset(&c, 0, sizeof c);
    void *owned[24];
    int n = 0;
#define MAKE(field, size) c.field = owned[n++] = zeros(size)
    MAKE(partition, 4 * s.records); MAKE(kind, 4 * s.records); MAKE(offset, 8 * s.records); MAKE(millis, 8 * s.records);
    MAKE(key_ends, 4 * (s.records + 1)); MAKE(value_ends, 4 * (s.records + 1));
    MAKE(keys, s.key_bytes); MAKE(values, s.value_bytes);
    if (s.null_keys) MAKE(key_valid, (s.records + 7) / 8);
    if (s.null_values) MAKE(value_valid, (s.records + 7) / 8);
    if (s.headers) {
      MAKE(header_ends, 4 * (s.records + 1)); MAKE(header_valid, (s.records + 7) / 8);
      MAKE(name_ends, 4 * (s.headers + 1)); MAKE(header_value_ends, 4 * (s.headers + 1));
      MAKE(names, s.name_bytes); MAKE(header_values, s.header_bytes);
      if (s.null_header_values) MAKE(header_value_valid, (s.headers + 7) / 8);
    }
    MAKE(runs, 48 * s.runs); MAKE(topics, TOPIC_BYTES * (s.runs + s.errors));
    MAKE(errors, 48 * s.errors); MAKE(error_texts, ERROR_BYTES * s.errors);
    if (s.bad_headers) MAKE(bad_headers, 8 * s.bad_headers);
    const void **seen = owned[n++] = zeros(8 * (s.runs + s.errors));
    fill(lib, taken, count, &c, seen);
    for (long i = 0; i < count; i++) CHECK(!taken[i]);
    compare(&c, &s, were, count);
    while (n) free(owned[--n]);
  }
}

int main(int argc, char **argv) {
  library lib = {fake_consume, fake_timestamp, fake_headers, fake_header, fake_topic_name, fake_destroy, fake_leader_epoch};
  long rounds = argc > 2 ? atol(argv[2]) : 1000;
  state = (argc > 1 ? strtoull(argv[1], NULL, 10) : 1) * 2654435769u + 88172645463325252u;
  for (int i = 0; i < TOPICS; i++) {
    size_t length = i == TOPICS - 1 ? 249 : (size_t)(5 + i);
    memset(topic_names[i], 'a' + i, length);
  }
  for (round_number = 0; round_number < rounds; round_number++) {
    handed_out = 0;
    make();
    play(&lib);
    discard();
  }
  printf("%ld rounds\n", rounds);
  return 0;
}
