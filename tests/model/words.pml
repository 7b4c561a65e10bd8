/* The words of the region, the server's private memory, and what only the property knows. */

#define NONE 255

/* --- Words of the region ------------------------------------------------------------------- */

/* A value is as good as its key and version, which are different for every change. */
#define VALUE(k, v) ((v) | (k) << 4)
/*
 * check: a function of version, key, value and the block's offset, without collisions. 0 is no
 * value of it since keys are 1 and 2.
 */
#define CHECK(k, v, b) (VALUE(k, v) | (b) << 6)
#define CHECK_VALUE(c) ((c) & 63)
#define CHECK_BLOCK(c) ((c) >> 6)
#define KEY_OF(value) ((value) >> 4)
#define VERSION_OF(value) ((value) & 15)

byte chk[NB], ver[NB], key[NB], val[NB], more[NB]; /* more: the second word of the value */

/* Slot: fingerprint and block; 0 is empty. SAME_FINGERPRINT: only the items tell the keys apart. */
#ifdef SAME_FINGERPRINT
#define FINGERPRINT(k) 1
#else
#define FINGERPRINT(k) (k)
#endif
#define SLOT(k, b) ((b) + 1 | FINGERPRINT(k) << 2)
#define MATCHES(word, k) ((word) >> 2 == FINGERPRINT(k))
#define BLOCK_OF(word) (((word) & 3) - 1)
#define FOREIGN_SLOT (1 | 3 << 2) /* of a key of no concern, with a fingerprint of its own */

/*
 * Header: prefix with a 1 ahead of it (so its length is the depth; 1 is depth 0, as are the zeros
 * of a segment that has not been filled), and the link.
 */
#define HEADER(prefix, link) ((prefix) | (link) << 3)
#define PREFIX(header) ((header) & 7)
#define LINK(header) ((header) >> 3)
#define HASH(k) ((k) == 1 -> 3 : HASH2)
#define COVERS(header, k) \
  (PREFIX(header) == 1 || PREFIX(header) == (4 | HASH(k)) >> 1 || PREFIX(header) == (4 | HASH(k)))

/* Segment s is the primary bucket PRIMARY(s) and NO overflow buckets. Split i makes i + 1 of i. */
#ifndef NSEG
#define NSEG (SPLITS + 1)
#endif
#define BUCKETS (NSEG * (1 + NO))
#define PRIMARY(s) ((s) * (1 + NO))
#define OVERFLOW(s, link) ((s) * (1 + NO) + (link))
#define IS_PRIMARY(bucket) ((bucket) % (1 + NO) == 0)

byte header[BUCKETS];
byte slot[BUCKETS * NS];
byte directory[3]; /* by key */

/* --- The server's private memory ----------------------------------------------------------- */

bool locked[NSEG];        /* all stripes of a segment: the keys share a bucket */
byte counter[NSEG];       /* versions */
byte used_blocks;         /* bit b: block b is not free */
byte used_overflow[NSEG]; /* bit link */

/* --- What only the property knows ---------------------------------------------------------- */

byte low = 1;
byte begun = 1;
bool reading;
byte absent_state; /* oldest state in which the GET under way may find the key absent; 0: none */
/*
 * Bit b: a slot that matches READ_KEY has named block b. A reader may have kept such a slot in its
 * cache ever since.
 */
byte named;

#define MAX(a, b) ((a) > (b) -> (a) : (b))

inline BeginChange(k, state) {
  if
  :: k == READ_KEY ->
     begun = state;
     if
     :: reading && absent_state == 0 && (state & 1) -> absent_state = state
     :: else
     fi
  :: else
  fi
}
inline EndChange(k) {
  if
  :: k == READ_KEY -> low = begun
  :: else
  fi
}
inline StoreSlot(at, k, b) {
  slot[at] = SLOT(k, b);
  if
  :: MATCHES(slot[at], READ_KEY) -> named = named | 1 << b
  :: else
  fi
}
