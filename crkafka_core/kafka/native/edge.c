/* Records from librdkafka into the buffers of Arrow columns, without an object for each.

   `take` fetches messages from a queue and says how large the buffers must be; the caller allocates them; `fill` copies
   into them and frees the messages. `drop` frees messages that were taken and are not filled. Every message that `take`
   gives is freed exactly once, by `fill` or by `drop`, and its place is NULL from then on.

   Needs no header but libc's: librdkafka's functions are passed in, and `message` is its public rd_kafka_message_t. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define TOPIC_BYTES 256 /* Kafka allows 249 */
#define ERROR_BYTES 256
#define LONGEST_NAME (1 << 24)
#define NO_HEADERS -156

typedef struct {
  int err;
  void *topic;
  int32_t partition;
  uint8_t *value;
  size_t value_size;
  uint8_t *key;
  size_t key_size;
  int64_t offset;
  void *private_data;
} message;

typedef struct {
  long (*consume)(void *queue, int timeout_ms, message **out, size_t size);
  int64_t (*timestamp)(const message *, int *kind);
  int (*headers)(const message *, void **headers);
  int (*header)(const void *headers, size_t index, const char **name, const void **value, size_t *size);
  const char *(*topic_name)(const void *topic);
  void (*destroy)(message *);
  int32_t (*leader_epoch)(const message *);
} library;

typedef struct {
  int64_t records, errors, runs;
  int64_t key_bytes, null_keys, value_bytes, null_values;
  int64_t with_headers, headers, name_bytes, header_bytes, null_header_values, bad_headers;
} sizes;

typedef struct {
  int32_t *partition, *kind;
  int64_t *offset, *millis;
  int32_t *key_ends, *value_ends;
  uint8_t *keys, *values, *key_valid, *value_valid; /* validity: NULL when nothing is null */
  int32_t *header_ends, *name_ends, *header_value_ends;
  uint8_t *header_valid, *names, *header_values, *header_value_valid;
  int64_t *runs;  /* six numbers each: topic, partition, start, first offset, last offset + 1, leader epoch */
  char *topics;   /* TOPIC_BYTES for each distinct topic, in the order of their first record or error */
  int64_t *errors; /* six numbers each: code, topic, partition, offset, length of the text, how many records came before */
  char *error_texts; /* ERROR_BYTES each */
  int64_t *bad_headers; /* rows whose headers cannot be read */
  int64_t topic_count, odd_names; /* names of headers that are not ASCII, and so perhaps not UTF-8 */
} columns;

/* Raised with every change of the structures or arguments here: a library built from an older source is not called. */
const int edge_layout = 3;

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The length of a header's name, which may have a NUL inside. librdkafka keeps the value right behind the name and its closing NUL;
   in front of the name: the value's size, the name's size, the value. The latter is private: believed where the two others agree
   with what the public function said. A header without a value needs it. */
static size_t name_length(const char *name, const void *value, size_t value_size) {
  size_t least = strlen(name), before[2];
  const void *kept;
  ptrdiff_t apart = value ? (const char *)value - name - 1 : -1;
  if (value) return apart >= (ptrdiff_t)least && apart < LONGEST_NAME && name[apart] == 0 ? (size_t)apart : least;
  memcpy(before, name - 3 * sizeof(size_t), sizeof before);
  memcpy(&kept, name - sizeof(void *), sizeof kept);
  if (kept != value || before[0] != value_size || before[1] < least || before[1] >= LONGEST_NAME) return least;
  return name[before[1]] == 0 ? before[1] : least;
}

/* The headers of a record, or librdkafka's error. It makes a reader of them even to say that there are none, a tenth of a member's time:
   so a record is looked at first. A value lies in the batch as it was fetched, and is followed there by the number of headers.
   Not so an empty value, nor one of a batch of an older format than 2, which has no leader epoch. */
static int headers_of(const library *lib, const message *m, int32_t leader_epoch, void **headers) {
  if (leader_epoch >= 0 && m->value && m->value_size && m->value[m->value_size] == 0) return NO_HEADERS;
  return lib->headers(m, headers);
}

static void measure(const library *lib, const message *m, int32_t leader_epoch, sizes *s) {
  s->key_bytes += m->key ? (int64_t)m->key_size : 0;
  s->null_keys += !m->key;
  s->value_bytes += m->value ? (int64_t)m->value_size : 0;
  s->null_values += !m->value;
  void *headers;
  int failed = headers_of(lib, m, leader_epoch, &headers);
  s->bad_headers += failed && failed != NO_HEADERS;
  if (failed) return;
  const char *name;
  const void *value;
  size_t size, i;
  for (i = 0; lib->header(headers, i, &name, &value, &size) == 0; i++) {
    s->name_bytes += (int64_t)name_length(name, value, size);
    s->header_bytes += value ? (int64_t)size : 0;
    s->null_header_values += !value;
  }
  s->headers += (int64_t)i;
  s->with_headers += i > 0;
}

/* Up to `most` messages, fewer once their bytes pass `most_bytes` or the time is over. Returns how many; `s` tells their sizes.
   `at_once`: of large records that follow small ones, so many come before the bound on bytes is felt. */
long take(const library *lib, void *queue, int timeout_ms, long most, int64_t most_bytes, long at_once, message **out, sizes *s) {
  int64_t until = now_ms() + timeout_ms;
  const void *topic = NULL;
  int32_t partition = -1, epoch = -1;
  long got = 0, i;
  memset(s, 0, sizeof *s);
  while (got < most) {
    int64_t bytes = s->key_bytes + s->value_bytes + s->header_bytes + s->name_bytes;
    int64_t left = most_bytes - bytes, ask = 1;
    if (left <= 0) break;
    if (got) ask = left / (bytes / got + 1);
    if (ask < 1) ask = 1;
    if (ask > at_once) ask = at_once;
    if (ask > most - got) ask = most - got;
    int64_t wait = until - now_ms();
    long more = lib->consume(queue, wait > 0 ? (int)wait : 0, out + got, (size_t)ask);
    if (more <= 0) break;
    for (i = got; i < got + more; i++) {
      message *m = out[i];
      if (m->err) {
        s->errors++;
        continue;
      }
      int32_t of_leader = lib->leader_epoch(m);
      if (m->topic != topic || m->partition != partition || of_leader != epoch) {
        s->runs++;
        topic = m->topic;
        partition = m->partition;
        epoch = of_leader;
      }
      s->records++;
      measure(lib, m, of_leader, s);
    }
    got += more;
    if (more < ask && wait <= 0) break;
  }
  return got;
}

static int64_t topic_index(const library *lib, const void *topic, const void **seen, columns *c) {
  int64_t i;
  for (i = 0; i < c->topic_count; i++)
    if (seen[i] == topic) return i;
  const char *name = topic ? lib->topic_name(topic) : "";
  strncpy(c->topics + i * TOPIC_BYTES, name ? name : "", TOPIC_BYTES - 1);
  seen[i] = topic;
  return c->topic_count++;
}

static int is_ascii(const uint8_t *b, size_t n) {
  while (n--)
    if (b[n] & 0x80) return 0;
  return 1;
}

static void set_bit(uint8_t *bits, int64_t i) { bits[i >> 3] |= (uint8_t)(1u << (i & 7)); }

typedef struct {
  int64_t row, header, key, value, name, header_value, run, error, bad_headers;
} position;

static void fill_headers(const library *lib, const message *m, int32_t leader_epoch, columns *c, position *p) {
  void *headers;
  int failed = headers_of(lib, m, leader_epoch, &headers);
  if (failed && failed != NO_HEADERS) c->bad_headers[p->bad_headers++] = p->row;
  if (!failed) {
    const char *name;
    const void *value;
    size_t size, i;
    for (i = 0; lib->header(headers, i, &name, &value, &size) == 0; i++) {
      size_t length = name_length(name, value, size);
      c->odd_names += !is_ascii((const uint8_t *)name, length);
      memcpy(c->names + p->name, name, length);
      p->name += (int64_t)length;
      if (value) {
        memcpy(c->header_values + p->header_value, value, size);
        p->header_value += (int64_t)size;
        if (c->header_value_valid) set_bit(c->header_value_valid, p->header);
      }
      p->header++;
      c->name_ends[p->header] = (int32_t)p->name;
      c->header_value_ends[p->header] = (int32_t)p->header_value;
    }
    if (i) set_bit(c->header_valid, p->row);
  }
  if (c->header_ends) c->header_ends[p->row + 1] = (int32_t)p->header;
}

static void fill_error(const message *m, int64_t topic, columns *c, position *p) {
  size_t length = m->value ? m->value_size : 0;
  if (length > ERROR_BYTES) length = ERROR_BYTES;
  if (length) memcpy(c->error_texts + p->error * ERROR_BYTES, m->value, length);
  int64_t numbers[6] = {m->err, topic, m->partition, m->offset, (int64_t)length, p->row};
  memcpy(c->errors + 6 * p->error++, numbers, sizeof numbers);
}

static void fill_record(const library *lib, const message *m, int64_t topic, columns *c, position *p) {
  int64_t *run = c->runs + 6 * p->run;
  int kind;
  c->millis[p->row] = lib->timestamp(m, &kind);
  c->kind[p->row] = kind;
  c->partition[p->row] = m->partition;
  c->offset[p->row] = m->offset;
  if (m->key) {
    memcpy(c->keys + p->key, m->key, m->key_size);
    p->key += (int64_t)m->key_size;
    if (c->key_valid) set_bit(c->key_valid, p->row);
  }
  if (m->value) {
    memcpy(c->values + p->value, m->value, m->value_size);
    p->value += (int64_t)m->value_size;
    if (c->value_valid) set_bit(c->value_valid, p->row);
  }
  int32_t epoch = lib->leader_epoch(m);
  if (c->header_ends || c->bad_headers) fill_headers(lib, m, epoch, c, p);
  if (p->row && run[-6] == topic && run[-5] == m->partition && run[-1] == epoch) {
    run[-2] = m->offset + 1;
  } else {
    int64_t numbers[6] = {topic, m->partition, p->row, m->offset, m->offset + 1, epoch};
    memcpy(c->runs + 6 * p->run++, numbers, sizeof numbers);
  }
  p->row++;
  c->key_ends[p->row] = (int32_t)p->key;
  c->value_ends[p->row] = (int32_t)p->value;
}

/* Frees what lies in these places. */
void drop(const library *lib, message **taken, long count) {
  long i;
  for (i = 0; i < count; i++) {
    if (taken[i]) lib->destroy(taken[i]);
    taken[i] = NULL;
  }
}

/* Copies `count` messages, as `take` gave them, into buffers of the sizes that it told, and frees them. `seen` has room for a
   pointer per run and error. Buffers of validity are zero before; the first end of each column is set here. */
void fill(const library *lib, message **taken, long count, columns *c, const void **seen) {
  position p;
  int64_t topic = 0;
  long i;
  memset(&p, 0, sizeof p);
  c->topic_count = c->odd_names = 0;
  c->key_ends[0] = c->value_ends[0] = 0;
  if (c->header_ends) c->header_ends[0] = c->name_ends[0] = c->header_value_ends[0] = 0;
  for (i = 0; i < count; i++) {
    message *m = taken[i];
    if (!i || m->topic != taken[i - 1]->topic) topic = topic_index(lib, m->topic, seen, c);
    if (m->err) fill_error(m, topic, c, &p);
    else fill_record(lib, m, topic, c, &p);
  }
  drop(lib, taken, count);
}
