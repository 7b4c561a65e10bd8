/*
 * The server: the stores of server/storage/publish.h, index.cc and store_maintenance.cc.
 */

/*
 * ChangeScope: a segment that the key may have been in when somebody looked into the directory,
 * whose lock is free and whose header covers the key. Keys come to segments in ascending order.
 */
#define CAN_LOCK(s, k) ((s) <= directory[k] && !locked[s] && COVERS(header[PRIMARY(s)], k))
#define SLOTS(bucket) (IS_PRIMARY(bucket) -> NSP : NS)

hidden byte f_bucket, f_at, f_end, f_block;
/*
 * ChangeScope::Find. `at`: the key's slot or NONE; `room`: the first empty slot or NONE; `tail`:
 * the last bucket. The server compares keys and does not look at the check, which the lock makes
 * superfluous; that it would match is asserted here.
 */
inline Find(s, k, at, room, tail) {
  d_step {
    at = NONE;
    room = NONE;
    f_bucket = PRIMARY(s);
    do
    :: true ->
       f_at = f_bucket * NS;
       f_end = f_at + SLOTS(f_bucket);
       do
       :: f_at < f_end ->
          if
          :: slot[f_at] == 0 && room == NONE -> room = f_at
          :: at == NONE && slot[f_at] != 0 && MATCHES(slot[f_at], k) &&
             key[BLOCK_OF(slot[f_at])] == k ->
             at = f_at
          :: else
          fi;
          f_at++
       :: else -> break
       od;
       tail = f_bucket;
       if
       :: LINK(header[f_bucket]) == 0 -> break
       :: else -> f_bucket = OVERFLOW(s, LINK(header[f_bucket]))
       fi
    od;
    if
    :: at != NONE ->
       f_block = BLOCK_OF(slot[at]);
#ifndef ONLY_READERS
       assert(chk[f_block] == CHECK(k, ver[f_block], f_block));
       assert(val[f_block] == VALUE(k, ver[f_block]) && more[f_block] == val[f_block])
#endif
    :: else
    fi;
    f_bucket = 0;
    f_at = 0;
    f_end = 0;
    f_block = 0
  }
}

/* Any free block; blocks if there is none. */
inline Allocate(b) {
  if
  :: !(used_blocks & 1) -> b = 0
  :: NB > 1 && !(used_blocks & 2) -> b = 1
  :: NB > 2 && !(used_blocks & 4) -> b = 2
  fi;
  used_blocks = used_blocks | 1 << b
}
#define CAN_ALLOCATE (used_blocks != (1 << NB) - 1)
inline Free(b) { used_blocks = used_blocks & ~(1 << b) }

/*
 * Relaxed stores between two release stores, in any order: the words of a body, and the check's 0
 * that they may pass. `todo` says which: Z the 0, the others words.
 */
#define Z 1
#ifdef SINGLE_WORDS
#define W_VERSION 2
#define W_KEY 4
#define W_VALUE 8
#define W_MORE 16
#define W_ALL 30
inline RelaxedStores(todo, k, v, b) {
  do
  :: atomic { todo & Z -> chk[b] = 0; todo = todo & ~Z }
  :: atomic { todo & W_VERSION -> ver[b] = v; todo = todo & ~W_VERSION }
  :: atomic { todo & W_KEY -> key[b] = k; todo = todo & ~W_KEY }
  :: atomic { todo & W_VALUE -> val[b] = VALUE(k, v); todo = todo & ~W_VALUE }
  :: atomic { todo & W_MORE -> more[b] = VALUE(k, v); todo = todo & ~W_MORE }
  :: todo == 0 -> break
  od
}
#else
#define W_ALL 2
inline RelaxedStores(todo, k, v, b) {
  do
  :: atomic { todo & Z -> chk[b] = 0; todo = todo & ~Z }
  :: atomic {
       todo & W_ALL ->
       ver[b] = v;
       key[b] = k;
       val[b] = VALUE(k, v);
       more[b] = VALUE(k, v);
       todo = todo & ~W_ALL
     }
  :: todo == 0 -> break
  od
}
#endif

/*
 * What breaks a rule and does no harm, which run.sh has as configurations that hold:
 *
 * HARMLESS_ANSWER: the request is answered before its last store, but after the one that ends the
 * state before (the slot of a new key, else the old check's 0). Whoever then comes upon a slot whose
 * block is not valid asks the server, which waits for the lock: the answer is that of the change.
 * HARMLESS_FREE: the old block is freed between its check = 0 and the store of the slot. For a while
 * the slot may lead to another key's item, which is evidence of nothing, and the lock keeps out
 * those who would take the slot at its word.
 * HARMLESS_NO_ZERO: an update in place without check = 0 first. The old check covers the version,
 * which is new in every change, so it fits no word of the new item, and until the new check is
 * stored nobody has seen that item: who still copied the old one is in time. So what check = 0 does
 * is only to tell readers earlier.
 */
#ifdef HARMLESS_ANSWER
inline AnswerEarly(k) { EndChange(k) }
#else
inline AnswerEarly(k) { skip }
#endif

/*
 * PublishReplace: block b for block o in slot `at`, then unlocks and frees the old block. (For a
 * move the key's state stays what it is.)
 */
inline Replace(s, k, v, at, o, b, todo) {
#if defined(MUTANT_PLAIN_STORES)
  todo = 7;
  do
  :: atomic { todo & 1 -> chk[o] = 0; todo = todo & ~1 }
  :: atomic { todo & 2 -> StoreSlot(at, k, b); todo = todo & ~2 }
  :: atomic { todo & 4 -> chk[b] = CHECK(k, v, b); todo = todo & ~4 }
  :: todo == 0 -> break
  od;
  atomic { EndChange(k); Free(o); locked[s] = false }
#elif defined(MUTANT_UPDATE_KILLS_LATE)
  atomic { StoreSlot(at, k, b) };
  atomic { chk[b] = CHECK(k, v, b) };
  atomic { chk[o] = 0; EndChange(k); Free(o); locked[s] = false }
#elif defined(MUTANT_SLOT_MOVES)
  atomic { chk[o] = 0 };
  if
  :: atomic { room != NONE -> StoreSlot(room, k, b) }; slot[at] = 0
  :: atomic { room == NONE -> StoreSlot(at, k, b) }
  fi;
  atomic { chk[b] = CHECK(k, v, b); EndChange(k); Free(o); locked[s] = false }
#elif defined(HARMLESS_FREE)
  atomic { chk[o] = 0; Free(o) };
  atomic { StoreSlot(at, k, b) };
  atomic { chk[b] = CHECK(k, v, b); EndChange(k); locked[s] = false }
#else
  atomic { chk[o] = 0; AnswerEarly(k) };
  atomic { StoreSlot(at, k, b) };
  atomic { chk[b] = CHECK(k, v, b); EndChange(k); Free(o); locked[s] = false }
#endif
}

/* Index::UnlinkEmptyTail of segment s. */
hidden byte u_bucket, u_next;
hidden byte u_empty;
inline FindEmptyTail(s, before) {
  d_step {
    before = NONE;
    u_bucket = PRIMARY(s);
    do
    :: LINK(header[u_bucket]) != 0 ->
       u_next = OVERFLOW(s, LINK(header[u_bucket]));
       u_empty = slot[u_next * NS] == 0;
#if NS > 1
       u_empty = u_empty && slot[u_next * NS + 1] == 0;
#endif
       if
#ifdef MUTANT_UNLINK_MIDDLE
       :: u_empty -> before = u_bucket
#else
       :: u_empty && LINK(header[u_next]) == 0 -> before = u_bucket
#endif
       :: else
       fi;
       u_bucket = u_next
    :: else -> break
    od;
    u_bucket = 0;
    u_next = 0;
    u_empty = false
  }
}
#if NO > 0
inline UnlinkEmptyTails(s, before, gone) {
  do
  :: atomic {
       FindEmptyTail(s, before);
       if
       :: before == NONE -> before = 0; break
       :: else
       fi;
       gone = LINK(header[before]);
#ifdef MUTANT_UNLINK_MIDDLE
       header[before] = HEADER(PREFIX(header[before]), LINK(header[OVERFLOW(s, gone)]));
#else
       header[before] = HEADER(PREFIX(header[before]), 0);
       used_overflow[s] = used_overflow[s] & ~(1 << gone);
       gone = 0
#endif
     }
#ifdef MUTANT_UNLINK_MIDDLE
     /* A free overflow bucket has no link. */
     atomic {
       header[OVERFLOW(s, gone)] = 0;
       used_overflow[s] = used_overflow[s] & ~(1 << gone);
       gone = 0
     }
#endif
  od
}
#else
inline UnlinkEmptyTails(s, before, gone) { skip }
#endif

#if NO == 0
#define CAN_LINK(s) false
#elif NO == 1
#define CAN_LINK(s) (used_overflow[s] != 2)
#else
#define CAN_LINK(s) (used_overflow[s] != 6)
#endif
/* An overflow bucket of the pool. */
inline TakeOverflow(s, link) {
  if
  :: !(used_overflow[s] & 2) -> link = 1
  :: NO > 1 && !(used_overflow[s] & 4) -> link = 2
  fi;
  used_overflow[s] = used_overflow[s] | 1 << link
}

/* Locks the segment of k. */
inline Lock(s, k) {
  if
  :: CAN_LOCK(0, k) -> s = 0
#if NSEG > 1
  :: CAN_LOCK(1, k) -> s = 1
#endif
#if NSEG > 2
  :: CAN_LOCK(2, k) -> s = 2
#endif
  fi;
  locked[s] = true
}

mtype = { kNothing, kInsert, kInPlace, kElsewhere, kDelete, kMove };
#define PUBLISHES(op) (op == kInsert || op == kElsewhere || op == kMove)

/* Mutants: the answer before the first store that readers can see. */
#if defined(MUTANT_INSERT_ANSWERED_EARLY)
#define ANSWERED_EARLY(op) (op == kInsert)
#elif defined(MUTANT_IN_PLACE_ANSWERED_EARLY)
#define ANSWERED_EARLY(op) (op == kInPlace)
#elif defined(MUTANT_UPDATE_ANSWERED_EARLY)
#define ANSWERED_EARLY(op) (op == kElsewhere)
#elif defined(MUTANT_DELETE_ANSWERED_EARLY)
#define ANSWERED_EARLY(op) (op == kDelete)
#endif
/*
 * Mutants: the old block is freed before its check is 0. Another key of another bucket gets the
 * block, and then the 0. (After that 0 it does no harm: HARMLESS_FREE.)
 */
#if defined(MUTANT_MOVE_FREES_EARLY)
#define FREED_EARLY(op) (op == kMove)
#elif defined(MUTANT_UPDATE_FREES_EARLY)
#define FREED_EARLY(op) (op == kElsewhere)
#elif defined(MUTANT_DELETE_FREES_EARLY)
#define FREED_EARLY(op) (op == kDelete)
#endif

/* A server worker that changes keys first_key to last_key. */
proctype Writer(byte first_key, last_key) {
  byte done, k, s, at, room, tail, b, o, v, todo;
  mtype op;

  do
  :: done < OPS ->
     atomic {
       select (k : first_key .. last_key);
       Lock(s, k);
       done++;
       Find(s, k, at, room, tail);
       if
       :: at == NONE && CAN_ALLOCATE && (room != NONE || CAN_LINK(s)) -> op = kInsert
       :: at != NONE -> op = kInPlace
       :: at != NONE && CAN_ALLOCATE -> op = kElsewhere
       :: at != NONE -> op = kDelete
#ifdef MOVES
       :: at != NONE && CAN_ALLOCATE -> op = kMove
#endif
       :: else -> op = kNothing
       fi;
       if
       :: at != NONE -> o = BLOCK_OF(slot[at])
       :: else
       fi;
       if
       :: op == kMove -> v = ver[o]
       :: op == kDelete -> BeginChange(k, 2 * ver[o] + 1)
       :: op == kInsert || op == kInPlace || op == kElsewhere ->
          counter[s] = counter[s] + 1;
          v = counter[s];
          BeginChange(k, 2 * v)
       :: else
       fi;
       if
       :: PUBLISHES(op) ->
          Allocate(b);
          /* A block that was another's may begin with anything. */
          todo = (chk[b] != 0 -> Z | W_ALL : W_ALL)
#ifdef HARMLESS_NO_ZERO
       :: op == kInPlace -> b = o; todo = W_ALL
#else
       :: op == kInPlace -> b = o; todo = Z | W_ALL
#endif
       :: else
       fi;
#ifdef ANSWERED_EARLY
       if
       :: ANSWERED_EARLY(op) -> EndChange(k)
       :: else
       fi;
#endif
#ifdef FREED_EARLY
       if
       :: FREED_EARLY(op) -> Free(o)
       :: else
       fi;
#endif
     };
     RelaxedStores(todo, k, v, b);
     if
     :: atomic { op == kNothing -> locked[s] = false }

     :: op == kInsert ->
#if NO > 0
        if
        :: atomic {
             room == NONE -> /* EnsureSlot: links an empty overflow bucket. */
             TakeOverflow(s, room);
             header[tail] = HEADER(PREFIX(header[tail]), room);
             room = OVERFLOW(s, room) * NS
           }
        :: else
        fi;
#endif
#ifdef MUTANT_INSERT_CHECK_FIRST
        chk[b] = CHECK(k, v, b);
        atomic { StoreSlot(room, k, b); EndChange(k); locked[s] = false }
#else
        atomic { StoreSlot(room, k, b); AnswerEarly(k) };
        atomic { chk[b] = CHECK(k, v, b); EndChange(k); locked[s] = false }
#endif

#ifdef HARMLESS_ANSWER
     :: atomic { op == kInPlace -> EndChange(k) };
        atomic { chk[b] = CHECK(k, v, b); locked[s] = false }
#else
     :: atomic { op == kInPlace -> chk[b] = CHECK(k, v, b); EndChange(k); locked[s] = false }
#endif

#ifdef FREED_EARLY
     :: FREED_EARLY(op) && op != kDelete ->
        chk[o] = 0;
        atomic { StoreSlot(at, k, b) };
        atomic { chk[b] = CHECK(k, v, b); EndChange(k); locked[s] = false }
     :: (op == kElsewhere || op == kMove) && !FREED_EARLY(op) ->
#else
     :: op == kElsewhere || op == kMove ->
#endif
        Replace(s, k, v, at, o, b, todo)

     :: op == kDelete ->
#ifdef MUTANT_DELETE_SLOT_FIRST
        slot[at] = 0;
        atomic { chk[o] = 0; EndChange(k) };
#else
#ifdef HARMLESS_FREE
        atomic { chk[o] = 0; Free(o) };
#else
        atomic { chk[o] = 0; AnswerEarly(k) };
#endif
        atomic { slot[at] = 0; EndChange(k) };
#endif
        if
        :: !IS_PRIMARY(at / NS) -> UnlinkEmptyTails(s, tail, room)
        :: else
        fi;
#if defined(MUTANT_DELETE_FREES_EARLY) || defined(HARMLESS_FREE)
        locked[s] = false
#else
        atomic { Free(o); locked[s] = false }
#endif
     fi;
     /* What is of no use any more must not tell states apart. */
     d_step {
       k = 0;
       s = 0;
       at = 0;
       room = 0;
       tail = 0;
       b = 0;
       o = 0;
       v = 0;
       op = 0
     }
  :: else -> break
  od
}

#ifdef LARGE_MOVES
/*
 * Store::MoveItem of an item that is too large to be copied under the lock: the copy may be torn,
 * and counts only if the version is still the same.
 */
proctype Mover() {
  byte done, k, s, at, room, tail, b, o, v, todo;

end:
  do
  :: done < LARGE_MOVES ->
     atomic {
       select (k : 1 .. 2);
       CAN_ALLOCATE;
       Lock(s, k);
       Find(s, k, at, room, tail);
       locked[s] = false;
       at != NONE;
       done++;
       o = BLOCK_OF(slot[at]);
       v = ver[o];
       Allocate(b);
       todo = 15
     };
     chk[b] = 0;
     do
     :: atomic { todo & 1 -> ver[b] = ver[o]; todo = todo & ~1 }
     :: atomic { todo & 2 -> key[b] = key[o]; todo = todo & ~2 }
     :: atomic { todo & 4 -> val[b] = val[o]; todo = todo & ~4 }
     :: atomic { todo & 8 -> more[b] = more[o]; todo = todo & ~8 }
     :: todo == 0 -> break
     od;
     atomic {
       Lock(s, k);
       Find(s, k, at, room, tail)
     };
     if
#ifdef MUTANT_MOVE_UNCHECKED
     :: at != NONE && BLOCK_OF(slot[at]) == o ->
        v = ver[o];
#else
     :: at != NONE && BLOCK_OF(slot[at]) == o && ver[o] == v ->
#endif
        Replace(s, k, v, at, o, b, todo)
     :: else -> atomic { Free(b); locked[s] = false }
     fi;
     d_step {
       k = 0;
       s = 0;
       at = 0;
       room = 0;
       tail = 0;
       b = 0;
       o = 0;
       v = 0
     }
  :: else -> break
  od
}
#endif

#ifdef OVERLAYS
/*
 * The page of a free block goes to another size class for a while, and the value of a larger item
 * that lies over the block happens to hold a copy of an item's bytes.
 */
proctype Overlay() {
  byte done, b, o;

end:
  do
  :: done < OVERLAYS ->
     atomic {
       Allocate(b);
       select (o : 0 .. NB - 1);
       chk[b] = chk[o];
       ver[b] = ver[o];
       key[b] = key[o];
       val[b] = val[o];
       more[b] = more[o];
       Free(b);
       done++;
       b = 0;
       o = 0
     }
  :: else -> break
  od
}
#endif

#ifdef FOREIGN
/*
 * Another bucket of segment 0 and its keys, for which the primary bucket has no room: takes
 * overflow buckets from the common pool, makes a chain of them and gives them back.
 */
proctype Foreign() {
  byte done, first, second;

end:
  do
  :: done < FOREIGN ->
     atomic { CAN_LINK(0) -> TakeOverflow(0, first); done++ };
     slot[OVERFLOW(0, first) * NS] = FOREIGN_SLOT;
     if
     :: atomic {
          CAN_LINK(0) ->
          TakeOverflow(0, second);
          header[OVERFLOW(0, first)] = HEADER(0, second)
        };
        slot[OVERFLOW(0, second) * NS] = FOREIGN_SLOT;
        slot[OVERFLOW(0, second) * NS] = 0;
        atomic {
          header[OVERFLOW(0, first)] = 0;
          used_overflow[0] = used_overflow[0] & ~(1 << second);
          second = 0
        }
     :: skip
     fi;
     slot[OVERFLOW(0, first) * NS] = 0;
     /* The link to it lies in the other bucket, which nobody here reads. */
     atomic { used_overflow[0] = used_overflow[0] & ~(1 << first); first = 0 }
  :: else -> break
  od
}
#endif

#if SPLITS > 0
/* Index::Split of segment i, of depth i. Keys move whose hash has bit i, from the top, set. */
#define MOVES_AWAY(k, i) (HASH(k) >> (1 - (i)) & 1)

hidden byte p_bucket, p_at, p_end, p_to, p_link;
/* Fills segment i + 1. Bit j of `moved`: slot j of segment i moves. */
inline FillNew(i, moved) {
  d_step {
    p_bucket = PRIMARY(i);
    p_to = PRIMARY(i + 1) * NS;
    header[PRIMARY(i + 1)] = HEADER(PREFIX(header[PRIMARY(i)]) << 1 | 1, 0);
    p_link = 0;
    do
    :: true ->
       p_at = p_bucket * NS;
       p_end = p_at + SLOTS(p_bucket);
       do
       :: p_at < p_end ->
          if
          :: slot[p_at] != 0 && MOVES_AWAY(key[BLOCK_OF(slot[p_at])], i) ->
             moved = moved | 1 << (p_at - PRIMARY(i) * NS);
             if
             :: p_to == (PRIMARY(i + 1) + p_link) * NS + SLOTS(PRIMARY(i + 1) + p_link) ->
                header[PRIMARY(i + 1) + p_link] =
                    HEADER(PREFIX(header[PRIMARY(i + 1) + p_link]), p_link + 1);
                p_link++;
                used_overflow[i + 1] = used_overflow[i + 1] | 1 << p_link;
                p_to = (PRIMARY(i + 1) + p_link) * NS
             :: else
             fi;
             slot[p_to] = slot[p_at];
             p_to++
          :: else
          fi;
          p_at++
       :: else -> break
       od;
       if
       :: LINK(header[p_bucket]) == 0 -> break
       :: else -> p_bucket = OVERFLOW(i, LINK(header[p_bucket]))
       fi
    od;
    p_bucket = 0;
    p_at = 0;
    p_end = 0;
    p_to = 0;
    p_link = 0
  }
}

inline StoreEntries(i) {
  if
  :: MOVES_AWAY(2, i) -> directory[2] = i + 1
  :: else
  fi;
  directory[1] = i + 1
}
inline StoreOldHeaders(i) {
  header[PRIMARY(i)] = HEADER(PREFIX(header[PRIMARY(i)]) << 1, LINK(header[PRIMARY(i)]))
}
/* Index::RemoveMoved */
inline RemoveMoved(i, moved, t) {
  t = 0;
  do
  :: moved >> t & 1 ->
     atomic { slot[PRIMARY(i) * NS + t] = 0; moved = moved & ~(1 << t) }
  :: else ->
     if
     :: moved == 0 -> break
     :: else -> t++
     fi
  od;
  t = 0;
  UnlinkEmptyTails(i, before, t)
}

/* The locks of a split, which mutants take or let go of too late or too early. */
inline LockSegments(i) {
  locked[i] = true;
#ifndef MUTANT_NEW_SEGMENT_UNLOCKED
  locked[i + 1] = true
#endif
}
inline UnlockSegments(i) {
#ifndef MUTANT_NEW_SEGMENT_UNLOCKED
  locked[i + 1] = false;
#endif
  locked[i] = false
}

proctype Splitter() {
  byte i, moved, t, before;
#ifdef MUTANT_NEW_HEADERS_LATE
  byte new_header;
#endif

end:
  do
  :: i < SPLITS ->
     atomic {
       !locked[i] ->
#ifdef MUTANT_SPLIT_LOCKS_LATE
       FillNew(i, moved)
     };
     atomic {
       !locked[i] ->
#endif
       LockSegments(i);
#ifndef MUTANT_VERSIONS_NOT_HANDED_ON
       counter[i + 1] = counter[i];
#endif
#if !defined(MUTANT_DIRECTORY_FIRST) && !defined(MUTANT_SPLIT_LOCKS_LATE)
       /* One step: nothing leads to the new segment. */
       FillNew(i, moved);
#endif
#ifdef MUTANT_NEW_HEADERS_LATE
       /*
        * As the zeros of a new page: depth 0, which covers all keys. So what harms is that the link
        * is missing; where there is no overflow bucket it does none.
        */
       new_header = header[PRIMARY(i + 1)];
       header[PRIMARY(i + 1)] = HEADER(1, 0)
#endif
     };
     StoreEntries(i);
#ifdef MUTANT_NEW_HEADERS_LATE
     atomic { header[PRIMARY(i + 1)] = new_header; new_header = 0 };
#endif
#ifdef MUTANT_DIRECTORY_FIRST
     FillNew(i, moved);
#endif
#ifdef MUTANT_UNLOCK_BEFORE_HEADERS
     atomic { UnlockSegments(i) };
#endif
#ifdef MUTANT_REMOVE_BEFORE_HEADERS
     RemoveMoved(i, moved, t);
     StoreOldHeaders(i);
#else
     StoreOldHeaders(i);
#ifdef MUTANT_UNLOCK_BEFORE_REMOVE
     /* A slot that is still to be removed leads to a block that a key of this segment may get. */
     atomic { UnlockSegments(i) };
#endif
     RemoveMoved(i, moved, t);
#endif
#if defined(MUTANT_UNLOCK_BEFORE_HEADERS) || defined(MUTANT_UNLOCK_BEFORE_REMOVE)
     i++
#else
     atomic { UnlockSegments(i); i++ }
#endif
  :: else -> break
  od
}
#endif
