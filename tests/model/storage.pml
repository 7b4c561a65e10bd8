/*
 * Readers without locks against the server's stores: the orders of docs/design.md, section 5, with
 * one step for each store and each load that another party can see. What is checked:
 *
 * Linearizability per key, as an exact condition on histories. Changes of a key follow one another
 * (its bucket's lock), so its states can be numbered: 2v while version v is there, 2v + 1 after
 * that has been deleted, 1 before all. A history is linearizable if and only if each GET returns a
 * state
 *   - not older than the last change that was complete when the GET began,
 *   - not older than what any GET returned that ended before this one began,
 *   - not younger than the last change that had begun when the GET ended.
 * No instant within a change is presumed to be the one at which it takes effect, so whatever is
 * found is a violation indeed. `low` is the younger of the first two, `begun` the third. "Absent"
 * may stand for several states: the oldest possible one is taken, which constrains later GETs
 * least.
 *
 * Besides, that an item is never torn, and that one at rest (its bucket is not locked) verifies.
 *
 * Why one reader is enough: a GET leaves nothing behind but its answer, since the caches that the
 * next one starts from are any that a reader may have (reader.pml). The condition compares a GET
 * with changes, and with GETs that come before or after it, not with those beside it. So whatever
 * several readers can do wrong together, one does wrong in a sequence of GETs. And why GETs of one
 * key are enough: the condition is of each key by itself. READ_KEY says which; where the keys are
 * not alike there are configurations for both.
 *
 * Reductions, each of which leaves the set of possible answers as it is:
 *   - A READ ends as soon as a word has come that decides its outcome (not accepted, does not
 *     cover). The other words could have been loaded at that same instant, and what the reader
 *     does next may still come at any time later.
 *   - Taking a lock, looking through the chain, choosing, and the first store if it is only a word
 *     of a block that is not published, are one step: no reader sees the others. Likewise the last
 *     store, unlocking and freeing a block: to take a free block later is as if it were freed
 *     later.
 *   - The words of a body are one step, unless SINGLE_WORDS is defined: the block's check is 0
 *     meanwhile (or still the old one, which fits no mix), so a READ accepts the new words only if
 *     it goes on until the store of the check, and then it can load all of them after the last was
 *     stored.
 *   - The body of a block is stored under the lock and not ahead of it, for the same reason.
 *     Mover() does copy ahead of the lock, since there others may write to what it copies from.
 *   - The candidates of a bucket are tried in any order, which is more than readers do.
 *   - Hashes do not collide: the check matches what it was computed from and nothing else.
 *
 * Configurations and mutants (-D...), and how to run them: run.sh.
 */

#ifndef NB
#define NB 3 /* blocks, at most 3 */
#endif
#ifndef NS
#define NS 2 /* slots of a bucket */
#endif
#ifndef NSP
#define NSP NS /* of these, usable in a primary bucket: the others belong to keys of no concern */
#endif
#ifndef NO
#define NO 0 /* overflow buckets of a segment */
#endif
#ifndef SPLITS
#define SPLITS 0 /* one after the other, 0 to 2 */
#endif
#ifndef READ_KEY
#define READ_KEY 1
#endif
#ifndef HASH2
#define HASH2 2 /* upper two bits of the hash of key 2; those of key 1 are 3: all splits move it */
#endif
#ifndef OPS
#define OPS 3 /* changes */
#endif
#ifndef ROUNDS
#define ROUNDS 2 /* Lookup::kMaxRounds */
#endif

#include "words.pml"
#include "server.pml"
#include "reader.pml"

init {
  d_step {
    header[PRIMARY(0)] = HEADER(1, 0);
#if NSEG > 1
    header[PRIMARY(1)] = HEADER(1, 0);
#endif
#if NSEG > 2
    header[PRIMARY(2)] = HEADER(1, 0);
#endif
#ifdef APART
    /* As after a split that parted the keys. */
    header[PRIMARY(0)] = HEADER(2, 0);
    header[PRIMARY(1)] = HEADER(3, 0);
    directory[1] = 1
#endif
  };
  atomic {
#ifdef TWO_WRITERS
    run Writer(1, 1);
    run Writer(2, 2);
#else
    run Writer(1, 2);
#endif
#ifdef LARGE_MOVES
    run Mover();
#endif
#ifdef OVERLAYS
    run Overlay();
#endif
#ifdef FOREIGN
    run Foreign();
#endif
#if SPLITS > 0
    run Splitter();
#endif
    run Reader()
  }
}
