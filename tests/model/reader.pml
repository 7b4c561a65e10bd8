/*
 * The reader: client/src/lookup.cc with any contents of segment map and bucket cache that a client
 * may have. The words of a READ are loaded in any order.
 */

/* Words of the READ of a block. */
#define L_CHECK 1
#define L_VERSION 2
#define L_KEY 4
#define L_VALUE 8
#ifdef SINGLE_WORDS
#define L_MORE 16
#define L_ALL 31
#else
#define L_MORE 0 /* the second word of the value is always like the first */
#define L_ALL 15
#endif
/* Words of the READ of a bucket: slot i is bit i. */
#define L_HEADER 4
#define L_HEADER_AGAIN 8 /* mutant */

#ifdef MUTANT_PARALLEL_HEADER
#define ALSO_AGAIN(at) (IS_PRIMARY(at) -> L_HEADER_AGAIN : 0)
#else
#define ALSO_AGAIN(at) 0
#endif
#if defined(MUTANT_NO_HEADER_AGAIN) || defined(MUTANT_PARALLEL_HEADER)
#define BEFORE_ABSENT kAbsent
#else
#define BEFORE_ABSENT kReadHeaderAgain
#endif
#ifdef MUTANT_ZERO_IS_ABSENT
#define CHECK_IS_ZERO kNoEvidence
#else
#define CHECK_IS_ZERO kNotAccepted
#endif
#ifdef MUTANT_OTHER_KEY_IS_ABSENT
#define CHECK_OF_OTHER_KEY kNoEvidence
#else
#define CHECK_OF_OTHER_KEY kNotAccepted
#endif
#ifdef MUTANT_SERVER_GET_UNLOCKED
#define SERVER_WAITS false
#else
#define SERVER_WAITS locked[directory[READ_KEY]]
#endif
#ifdef MUTANT_CHECK_WITHOUT_OFFSET
#define WRONG_BLOCK(c) false
#else
#define WRONG_BLOCK(c) (CHECK_BLOCK(c) != b)
#endif
#ifdef MUTANT_CHECK_WITHOUT_KEY
/* The version's word alone does not say whose it is, so it is loaded after another one. */
#define WRONG_KEY(value) false
#define CAN_LOAD_VERSION (seen != 0)
#define VERSION_SAYS(v) VALUE(KEY_OF(seen), v)
#else
#define WRONG_KEY(value) (KEY_OF(value) != READ_KEY)
#define CAN_LOAD_VERSION true
#ifdef MUTANT_CHECK_WITHOUT_VERSION
#define VERSION_SAYS(v) seen
#else
#define VERSION_SAYS(v) VALUE(READ_KEY, v)
#endif
#endif

/* What the reader waits for, and what a word that was loaded means. */
mtype = { kIdle, kBlock, kBucket, kHeaderAgain, kDirectory, kServer };
mtype = {
  kMore,        /* other words are missing, or the next READ is posted */
  kSays,        /* the block's words are those of `word` as a value, as far as this one tells */
  kNotAccepted, /* the block is not valid or of another key */
  kNoEvidence,  /* a mutant's reading of such a block: as if there were no slot */
  kTaken,       /* one word more of a bucket */
  kNotCovered,  /* the primary bucket does not speak for the key */
  kNext,        /* the next candidate, or what comes after the last */
  kReadHeaderAgain, kReadFirst, kReadPrimary, kAskServer, kFound, kAbsent
};

proctype Reader() {
  mtype state = kIdle;
  mtype outcome = kMore;
  byte word;
  byte floor;                /* oldest state that the GET may return */
  byte segment, bucket, b;   /* what is being READ */
  byte missing;              /* words of it that are not loaded yet */
  byte seen, seen_version;   /* value and version according to the block's words so far; 0: none */
  byte candidates;           /* bit b: block b is to be tried */
  byte link, chain, rounds;
  bool cached, doubtful;

end:
  do
  :: atomic {
       if
       :: state == kIdle -> /* A GET begins. */
          reading = true;
          floor = low;
          if
          :: low & 1 -> absent_state = low
          :: !(low & 1) && begun > low && (begun & 1) -> absent_state = begun
          :: else
          fi;
          /*
           * A cached bucket may name any block that has once been named. Those that are tried in
           * vain change nothing, so one is enough.
           */
          if
          :: named & 1 -> candidates = 1
          :: named & 2 -> candidates = 2
          :: named & 4 -> candidates = 4
          :: true
          fi;
          cached = candidates != 0;
          outcome = (cached -> kNext : kReadFirst)

       /* The words of a block. */
       :: state == kBlock && (missing & L_CHECK) ->
          missing = missing & ~L_CHECK;
          word = CHECK_VALUE(chk[b]);
          if
          :: chk[b] == 0 -> outcome = CHECK_IS_ZERO
          :: chk[b] != 0 && WRONG_BLOCK(chk[b]) -> outcome = kNotAccepted
          :: chk[b] != 0 && !WRONG_BLOCK(chk[b]) && WRONG_KEY(word) -> outcome = CHECK_OF_OTHER_KEY
          :: else -> outcome = kSays
          fi
       :: state == kBlock && (missing & L_VERSION) && CAN_LOAD_VERSION ->
          missing = missing & ~L_VERSION;
          seen_version = ver[b];
          word = VERSION_SAYS(seen_version);
          outcome = kSays
       :: state == kBlock && (missing & L_KEY) ->
          missing = missing & ~L_KEY;
          word = seen;
          outcome = (key[b] == READ_KEY -> kSays : kNotAccepted)
       :: state == kBlock && (missing & L_VALUE) ->
          missing = missing & ~L_VALUE;
          word = val[b];
          outcome = (WRONG_KEY(word) -> kNotAccepted : kSays)
       :: state == kBlock && (missing & L_MORE) ->
          missing = missing & ~L_MORE;
          word = more[b];
          outcome = (WRONG_KEY(word) -> kNotAccepted : kSays)

       /* The words of a bucket. */
       :: state == kBucket && (missing & L_HEADER) ->
          missing = missing & ~L_HEADER;
          link = LINK(header[bucket]);
          outcome = (IS_PRIMARY(bucket) && !COVERS(header[bucket], READ_KEY)
                     -> kNotCovered : kTaken);
          /* TakeLink: a chain that is too long must have changed meanwhile. */
          if
          :: link != 0 && chain == NO -> link = 0; doubtful = true
          :: else
          fi
       :: state == kBucket && (missing & L_HEADER_AGAIN) ->
          missing = missing & ~L_HEADER_AGAIN;
          outcome = (COVERS(header[bucket], READ_KEY) -> kTaken : kNotCovered)
       :: state == kBucket && (missing & 3) ->
          if
          :: missing & 1 -> missing = missing & ~1; word = slot[bucket * NS]
#if NS > 1
          :: missing & 2 -> missing = missing & ~2; word = slot[bucket * NS + 1]
#endif
          fi;
          if
          :: word != 0 && MATCHES(word, READ_KEY) -> candidates = candidates | 1 << BLOCK_OF(word)
          :: else
          fi;
          outcome = kTaken

       /* One word each. */
       :: state == kHeaderAgain ->
          outcome = (COVERS(header[PRIMARY(segment)], READ_KEY) -> kAbsent : kNotCovered)
       :: state == kDirectory ->
          segment = directory[READ_KEY];
          outcome = kReadPrimary

       /* A GET by the server, under the lock. */
       :: state == kServer && !SERVER_WAITS ->
          segment = directory[READ_KEY];
          assert(COVERS(header[PRIMARY(segment)], READ_KEY));
          Find(segment, READ_KEY, bucket, link, chain);
          if
          :: bucket != NONE ->
             b = BLOCK_OF(slot[bucket]);
             seen = val[b];
             seen_version = ver[b];
             outcome = kFound
          :: else -> outcome = kAbsent
          fi
       fi;

       if
       :: outcome == kSays && seen != 0 && seen != word -> outcome = kNotAccepted
       :: outcome == kSays && (seen == 0 || seen == word) ->
          seen = word;
          outcome = (missing == 0 -> kFound : kMore)
       :: outcome == kTaken -> outcome = (missing == 0 -> kNext : kMore)
       :: else
       fi;
       if
       :: outcome == kNotAccepted || outcome == kNoEvidence ->
          doubtful = doubtful || (outcome == kNotAccepted && !cached);
          outcome = kNext
       :: else
       fi;
       if
       :: outcome == kNext ->
          seen = 0;
          seen_version = 0;
          b = 0;
          bucket = 0;
          missing = 0;
          if
          :: candidates != 0 ->
             if
             :: candidates & 1 -> b = 0
             :: candidates & 2 -> b = 1
             :: candidates & 4 -> b = 2
             fi;
             candidates = candidates & ~(1 << b);
             state = kBlock;
             missing = L_ALL;
             outcome = kMore
          :: candidates == 0 && cached -> outcome = kReadFirst
          :: candidates == 0 && !cached && link != 0 ->
             chain++;
             bucket = OVERFLOW(segment, link);
             link = 0;
             state = kBucket;
             missing = L_HEADER | (1 << SLOTS(bucket)) - 1;
             outcome = kMore
          :: candidates == 0 && !cached && link == 0 && !doubtful -> outcome = BEFORE_ABSENT
          :: candidates == 0 && !cached && link == 0 && doubtful ->
             rounds++;
             outcome = (rounds == ROUNDS -> kAskServer : kReadPrimary)
          fi
       :: else
       fi;
       if
       :: outcome == kReadFirst ->
          /* The client's copy of the directory may be as old as can be. */
          cached = false;
          select (segment : 0 .. directory[READ_KEY]);
          outcome = kReadPrimary
       :: else
       fi;
       if
       :: outcome == kMore
       :: outcome == kReadPrimary ->
          doubtful = false;
          chain = 0;
          bucket = PRIMARY(segment);
          state = kBucket;
          missing = L_HEADER | (1 << NSP) - 1 | ALSO_AGAIN(bucket)
       :: outcome == kReadHeaderAgain -> chain = 0; state = kHeaderAgain
       :: outcome == kNotCovered ->
          candidates = 0;
          link = 0;
          chain = 0;
          segment = 0;
          bucket = 0;
          missing = 0;
          doubtful = false;
          state = kDirectory
       :: outcome == kAskServer ->
          rounds = 0;
          chain = 0;
          segment = 0;
          doubtful = false;
          state = kServer
       :: else -> /* The GET ends. */
          if
          :: outcome == kFound ->
             assert(KEY_OF(seen) == READ_KEY && VERSION_OF(seen) == seen_version); /* not torn */
             assert(2 * seen_version >= floor);                                    /* not stale */
             assert(2 * seen_version <= begun); /* not of the future */
             low = MAX(low, 2 * seen_version)
          :: else ->
             assert(outcome == kAbsent && absent_state != 0); /* not lost */
             low = MAX(low, absent_state)
          fi;
          reading = false;
          absent_state = 0;
          floor = 0;
          segment = 0;
          bucket = 0;
          b = 0;
          missing = 0;
          seen = 0;
          seen_version = 0;
          candidates = 0;
          link = 0;
          chain = 0;
          rounds = 0;
          cached = false;
          doubtful = false;
          state = kIdle
       fi;
       word = 0;
       outcome = kMore
     }
  od
}
