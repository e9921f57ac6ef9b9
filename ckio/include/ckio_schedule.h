/* ckio_schedule.h: follow a plan of `ckio plan` in a program that keeps its main loop. C99.
 *
 *     ckio_schedule plan;
 *     ckio_action a;
 *     if (ckio_schedule_open(&plan, "plan.txt") != CKIO_OK)
 *         return fprintf(stderr, "%s\n", plan.message), 1;
 *     while (ckio_schedule_next(&plan, &a))
 *         switch (a.kind) {
 *         case CKIO_ADVANCE: ... take the steps a.begin to a.end - 1
 *         case CKIO_RECORD:  ... take them, and store their tapes in the working memory
 *         case CKIO_REVERSE: ... take the adjoint of the steps a.end - 1 to a.begin, from its tapes
 *         case CKIO_WRITE:   ... copy the state x_i, or the tape of step i, with i = a.begin, to
 *                                slot a.slot of level a.level
 *         case CKIO_READ:    ... copy it back, to the state or to the working memory
 *         case CKIO_DISCARD: ... it is not needed any more
 *         }
 *     ckio_schedule_close(&plan);
 *
 * One C file of the program defines CKIO_SCHEDULE_IMPLEMENTATION before it includes this header.
 *
 * `ckio_schedule_open` checks all actions before the first one is returned: what is read is stored,
 * each step is reversed once and has its tape, and no level nor the working memory is ever fuller
 * than its capacity, in bytes of the program: the ratio of a codec in the plan is not used. The
 * memory needed is 32 to 64 bytes for each action.
 */
#ifndef CKIO_SCHEDULE_H
#define CKIO_SCHEDULE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { /* ckio_action.kind */
    CKIO_ADVANCE, CKIO_RECORD, CKIO_REVERSE, CKIO_WRITE, CKIO_READ, CKIO_DISCARD
};

enum { CKIO_STATE, CKIO_TAPE }; /* ckio_action.checkpoint */

enum { /* ckio_schedule.error */
    CKIO_OK,
    CKIO_NO_FILE,       /* the file cannot be opened or read */
    CKIO_NO_MEMORY,
    CKIO_BAD_TEXT,      /* the text is not what `ckio plan` writes, or is incomplete */
    CKIO_NOT_SUPPORTED, /* such as a plan of single variables, or of a newer version */
    CKIO_ILLEGAL        /* an action breaks a rule: a wrong gradient, or not enough space */
};

enum { CKIO_FORMAT = 7, CKIO_MOST_LEVELS = 16 }; /* the newest version of the text that is read */
/* Spans of steps are half-open, [begin, end), in both directions. For a checkpoint, begin and end
 * are both its step. A slot holds one checkpoint; slots are numbered from 0 on each level, and a
 * number is used again after a discard. */
typedef struct {
    int32_t kind, checkpoint, level, slot;
    int64_t begin, end;
} ckio_action;

typedef struct {
    char name[64];
    int64_t capacity, peak; /* the most bytes that it may store, and that the plan stores */
    int64_t slots;          /* the most checkpoints that are stored at the same time */
} ckio_level;

typedef struct {
    int64_t error, line; /* the line is 0 if the error is not in one */
    char message[400];   /* the file, the line, what is wrong, and what to do */
    int64_t steps;
    int64_t tapes; /* the most steps whose tapes are in the working memory at the same time */
    int64_t levels;
    ckio_level level[CKIO_MOST_LEVELS];
    int64_t bytes[2]; /* of a state, and of the tape of a step: compare them with yours */
    ckio_action *actions;
    int64_t count, next; /* of the actions; next = 0 begins again, for another gradient */
} ckio_schedule;

/* Read and check a plan. Returns CKIO_OK, or the error; then there is nothing to close. */
int ckio_schedule_open(ckio_schedule *plan, const char *path);
/* Put the next action into `action` and return 1, or return 0 after the last. The first action that
 * ends at `steps` reaches the end of the forward run: then compute J and the adjoint at the end. */
int ckio_schedule_next(ckio_schedule *plan, ckio_action *action);
void ckio_schedule_close(ckio_schedule *plan);

#ifdef __cplusplus
}
#endif
#endif /* CKIO_SCHEDULE_H */

#ifdef CKIO_SCHEDULE_IMPLEMENTATION

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t step;
    int32_t checkpoint, slot;
} ckio_p_key;

typedef struct { /* what is needed only while a text is read */
    FILE *file;
    const char *path;
    ckio_schedule *plan;
    int64_t announced, memory, space; /* actions; bytes of working memory; actions of the array */
    int in_level; /* whether lines of TOML are those of the last level */
    int64_t used[CKIO_MOST_LEVELS], stored[CKIO_MOST_LEVELS], keys_space[CKIO_MOST_LEVELS];
    ckio_p_key *keys[CKIO_MOST_LEVELS]; /* those stored, sorted; then free slots */
    int64_t state, tape_begin, tape_end, reversed; /* x_i; tapes of [begin, end); steps */
    char text[8192];
} ckio_p_reader;

/* The functions below that return int return whether all is well; if not, there is an error. */
static int ckio_p_fail(ckio_p_reader *r, int code, const char *rule, int64_t a, int64_t b) {
    ckio_schedule *plan = r->plan;
    const size_t size = sizeof plan->message;
    int n = plan->line ? snprintf(plan->message, size, "%.150s, line %lld, \"%.60s\": ", r->path,
                                  (long long)plan->line, r->text)
                       : snprintf(plan->message, size, "%.150s: ", r->path);
    snprintf(plan->message + n, size - (size_t)n, rule, (long long)a, (long long)b);
    plan->error = code;
    return 0;
}

static int ckio_p_expected(ckio_p_reader *r, const char *expected) {
    return ckio_p_fail(r, CKIO_BAD_TEXT, expected, 0, 0);
}

static int ckio_p_illegal(ckio_p_reader *r, const char *rule, int64_t a, int64_t b) {
    return ckio_p_fail(r, CKIO_ILLEGAL, rule, a, b);
}

/* Make space in an array for one more than `count` elements. */
static int ckio_p_grow(ckio_p_reader *r, void **array, int64_t count, int64_t *space, size_t size) {
    int64_t wanted = *space ? 2 * *space : 64;
    void *larger;
    if (count < *space)
        return 1;
    larger = (uint64_t)wanted < SIZE_MAX / size ? realloc(*array, (size_t)wanted * size) : NULL;
    if (!larger)
        return ckio_p_fail(r, CKIO_NO_MEMORY, "there is no memory for the plan", 0, 0);
    *array = larger;
    *space = wanted;
    return 1;
}

/* Read a line without its end. At the end of the file, returns 0 without an error. */
static int ckio_p_line(ckio_p_reader *r) {
    char *end;
    int whole;
    r->plan->line++;
    if (!fgets(r->text, sizeof r->text, r->file))
        return ferror(r->file) ? ckio_p_fail(r, CKIO_NO_FILE, strerror(errno), 0, 0) : 0;
    end = r->text + strcspn(r->text, "\r\n");
    whole = !strcmp(end, "\n") || !strcmp(end, "\r\n") || (*end == 0 && feof(r->file));
    *end = 0;
    return whole || ckio_p_expected(r, "expected lines of text, of 8190 bytes at most");
}

/* Whether a word is next, which is skipped. */
static int ckio_p_word(const char **at, const char *word) {
    const char *start = *at + strspn(*at, " \t");
    size_t length = strcspn(start, " \t");
    if (length != strlen(word) || memcmp(start, word, length) != 0)
        return 0;
    *at = start + length;
    return 1;
}

/* The number of the word that is next, which is skipped, in a list that ends with NULL; or -1. */
static int ckio_p_which(const char **at, const char *const *words) {
    int i = 0;
    while (words[i] && !ckio_p_word(at, words[i]))
        i++;
    return words[i] ? i : -1;
}

/* Whether a whole number below 2**63 is next, which is skipped. No locale matters here. */
static int ckio_p_number(const char **at, int64_t *number) {
    const char *start = *at + strspn(*at, " \t");
    const size_t length = strspn(start, "0123456789");
    int64_t value = 0;
    for (*at = start; *at < start + length; ++*at) {
        if (value > (INT64_MAX - (**at - '0')) / 10)
            return 0;
        value = 10 * value + (**at - '0');
    }
    *number = value;
    return length > 0 && strcspn(*at, " \t") == 0;
}

static int ckio_p_ends(const char *at) {
    return at[strspn(at, " \t")] == 0;
}

static int ckio_p_title(ckio_p_reader *r) {
    const char *at = r->text;
    int64_t version;
    if (!ckio_p_line(r) && r->plan->error)
        return 0;
    if (!ckio_p_word(&at, "#") || !ckio_p_word(&at, "ckio") || !ckio_p_word(&at, "schedule")
        || !ckio_p_number(&at, &version) || !ckio_p_ends(at) || version < 1)
        return ckio_p_expected(r, "expected `# ckio schedule 1`: write a plan with `ckio plan -o`");
    if (version > CKIO_FORMAT)
        return ckio_p_fail(r, CKIO_NOT_SUPPORTED, "this header reads version %lld at most; take"
                           " that of the ckio that wrote the plan", CKIO_FORMAT, 0);
    return 1;
}

/* Read a line of the platform: TOML as ckio writes it, of which these three entries matter. */
static int ckio_p_platform(ckio_p_reader *r) {
    static const char *const entries[] = {"name", "capacity", "working_memory", NULL};
    ckio_schedule *plan = r->plan;
    const char *at = r->text + 2;
    ckio_level *level;
    size_t length;
    int entry;
    if (at[strspn(at, " \t")] == '[') {
        r->in_level = ckio_p_word(&at, "[[level]]");
        if (r->in_level && plan->levels == CKIO_MOST_LEVELS)
            return ckio_p_fail(r, CKIO_NOT_SUPPORTED, "more than %lld levels", CKIO_MOST_LEVELS, 0);
        if (r->in_level)
            plan->level[plan->levels++].capacity = INT64_MAX;
        return 1;
    }
    entry = ckio_p_which(&at, entries);
    if (entry < 0 || (entry == 2 ? plan->levels > 0 : !r->in_level))
        return 1;
    if (!ckio_p_word(&at, "="))
        return ckio_p_expected(r, "expected TOML as `ckio plan` writes it");
    at += strspn(at, " \t");
    level = entry == 2 ? NULL : plan->level + plan->levels - 1;
    if (entry == 0) {
        length = *at == '"' ? strcspn(at + 1, "\"") : 0;
        if (level->name[0] || length == 0 || length >= sizeof level->name || !at[length + 1])
            return ckio_p_expected(r, "expected one name in each [[level]], of 63 bytes at most");
        memcpy(level->name, at + 1, length);
    } else if (!ckio_p_number(&at, level ? &level->capacity : &r->memory) || !ckio_p_ends(at)) {
        return ckio_p_expected(r, "expected a whole number of bytes, as `ckio plan` writes it");
    }
    return 1;
}

static int ckio_p_header(ckio_p_reader *r) {
    static const char *const names[] = {
        "restart", "tape", "steps", "actions", "tape_restarts", "stored", "variables", "adjoint",
        "advance", "record", "reverse", "record_only", "overlap", "handed", "platform", NULL};
    const char *at = r->text + 1;
    int name = *at == ' ' ? ckio_p_which(&at, names) : -1;
    ckio_schedule *plan = r->plan;
    int64_t number, *numbers[] = {plan->bytes, plan->bytes + 1, &plan->steps, &r->announced};
    if (name >= 7)
        return 1; /* seconds, and what the actions do not depend on */
    if (name >= 4)
        return ckio_p_fail(r, CKIO_NOT_SUPPORTED, "the plan is not one of whole checkpoints, from"
                           " x_0; plan without --by-variable or tape_restarts", 0, 0);
    if (name >= 0 && *numbers[name] < 0 && ckio_p_number(&at, &number) && ckio_p_ends(at)) {
        *numbers[name] = number;
        return 1;
    }
    if ((name == 0 || name == 1) && ckio_p_word(&at, "per"))
        return ckio_p_fail(r, CKIO_NOT_SUPPORTED, "sizes differ: plan with the largest", 0, 0);
    return ckio_p_expected(r, "expected a header of `ckio plan`, once, such as `# steps 100`");
}

/* The place of a checkpoint among the keys of its level, which are sorted. If it is not there, -1
 * less the place where it belongs, mostly the end: a plan reads first what it wrote last. */
static int64_t ckio_p_find(const ckio_p_reader *r, const ckio_action *a) {
    const ckio_p_key *keys = r->keys[a->level];
    int64_t first = 0, last = r->stored[a->level];
    while (first < last) {
        int64_t middle = first + (last - first) / 2, after = keys[middle].step - a->begin;
        after = after ? after : keys[middle].checkpoint - a->checkpoint;
        if (after == 0)
            return middle;
        first = after < 0 ? middle + 1 : first;
        last = after < 0 ? last : middle;
    }
    return -1 - first;
}

/* Set the tapes in the working memory to those of the steps [begin, end), if they fit. */
static int ckio_p_tape(ckio_p_reader *r, int64_t begin, int64_t end) {
    int64_t bytes = r->plan->bytes[CKIO_TAPE];
    if (bytes > 0 && end - begin > r->memory / bytes)
        return ckio_p_illegal(r, "needs more than the %lld bytes of working memory", r->memory, 0);
    r->tape_begin = begin, r->tape_end = end;
    if (r->plan->tapes < end - begin)
        r->plan->tapes = end - begin;
    return 1;
}

static int ckio_p_write(ckio_p_reader *r, ckio_action *a) {
    ckio_level *level = r->plan->level + a->level;
    int64_t *used = r->used + a->level, *stored = r->stored + a->level;
    int64_t bytes = r->plan->bytes[a->checkpoint];
    int64_t place = ckio_p_find(r, a);
    void *array = r->keys[a->level];
    ckio_p_key *keys;
    if (a->checkpoint == CKIO_STATE && r->state != a->begin)
        return ckio_p_illegal(r, "needs the state x_%lld; it is x_%lld", a->begin, r->state);
    if (a->checkpoint == CKIO_TAPE && (r->tape_begin != a->begin || r->tape_end != a->begin + 1))
        return ckio_p_illegal(r, "needs the tape of this step alone; that of [%lld, %lld) is there",
                              r->tape_begin, r->tape_end);
    if (place >= 0)
        return ckio_p_illegal(r, "it is stored on level %lld already", a->level, 0);
    if (bytes > level->capacity - *used || level->slots == INT32_MAX)
        return ckio_p_illegal(r, "needs %lld bytes, but %lld are free", bytes,
                              level->capacity - *used);
    if (!ckio_p_grow(r, &array, *stored, &r->keys_space[a->level], sizeof *keys))
        return 0;
    keys = r->keys[a->level] = (ckio_p_key *)array;
    a->slot = *stored < level->slots ? keys[*stored].slot : (int32_t)level->slots++;
    place = -1 - place;
    memmove(keys + place + 1, keys + place, (size_t)((*stored)++ - place) * sizeof *keys);
    keys[place].step = a->begin, keys[place].checkpoint = a->checkpoint, keys[place].slot = a->slot;
    *used += bytes;
    level->peak = *used > level->peak ? *used : level->peak;
    return 1;
}

static int ckio_p_read_or_discard(ckio_p_reader *r, ckio_action *a) {
    ckio_p_key *keys = r->keys[a->level];
    int64_t place = ckio_p_find(r, a), *stored = r->stored + a->level;
    if (place < 0)
        return ckio_p_illegal(r, "it is not stored on level %lld", a->level, 0);
    a->slot = keys[place].slot;
    if (a->kind == CKIO_READ && a->checkpoint == CKIO_TAPE)
        return ckio_p_tape(r, a->begin, a->begin + 1);
    if (a->kind == CKIO_READ) {
        r->state = a->begin;
    } else {
        r->used[a->level] -= r->plan->bytes[a->checkpoint];
        memmove(keys + place, keys + place + 1, (size_t)(--*stored - place) * sizeof *keys);
        keys[*stored].slot = a->slot;
    }
    return 1;
}

/* Apply an action by the rules of `ckio.schedule.machine`. */
static int ckio_p_apply(ckio_p_reader *r, ckio_action *a) {
    switch (a->kind) {
    case CKIO_ADVANCE:
    case CKIO_RECORD:
        if (a->begin != r->state || a->end > r->plan->steps)
            return ckio_p_illegal(r, "the state is x_%lld of x_%lld", r->state, r->plan->steps);
        r->state = a->end;
        return a->kind == CKIO_ADVANCE || ckio_p_tape(r, a->begin, a->end);
    case CKIO_REVERSE:
        if (a->end != r->plan->steps - r->reversed)
            return ckio_p_illegal(r, "the adjoint is at %lld", r->plan->steps - r->reversed, 0);
        if (a->begin < r->tape_begin || a->end != r->tape_end)
            return ckio_p_illegal(r, "needs the tapes of its steps; that of [%lld, %lld) is there",
                                  r->tape_begin, r->tape_end);
        r->reversed += a->end - a->begin;
        r->tape_end = a->begin;
        return 1;
    default:
        if (a->level >= r->plan->levels)
            return ckio_p_illegal(r, "the platform has %lld levels, from 0", r->plan->levels, 0);
        return a->kind == CKIO_WRITE ? ckio_p_write(r, a) : ckio_p_read_or_discard(r, a);
    }
}

static int ckio_p_action(ckio_p_reader *r) {
    static const char *const verbs[] = {
        "advance", "record", "reverse", "write", "read", "discard", NULL};
    static const char *const letters[] = {"x", "t", NULL};
    ckio_schedule *plan = r->plan;
    const char *at = r->text;
    ckio_action a = {0, 0, 0, 0, 0, 0};
    int64_t level;
    void *array = plan->actions;
    a.kind = ckio_p_which(&at, verbs);
    if (a.kind < 0)
        return ckio_p_expected(r, "expected one of advance, record, reverse, write, read, discard");
    if (a.kind >= CKIO_WRITE) {
        a.checkpoint = ckio_p_which(&at, letters);
        if (a.checkpoint < 0 || !ckio_p_number(&at, &a.begin) || !ckio_p_number(&at, &level)
            || !ckio_p_ends(at) || level > INT16_MAX)
            return ckio_p_expected(r, "expected x or t, STEP and LEVEL");
        a.end = a.begin, a.level = (int32_t)level;
    } else if (!ckio_p_number(&at, &a.begin) || !ckio_p_number(&at, &a.end) || !ckio_p_ends(at)
               || a.begin >= a.end) {
        return ckio_p_expected(r, "expected BEGIN and END, whole numbers, BEGIN < END");
    }
    if (plan->steps < 1 || plan->bytes[CKIO_STATE] < 0 || plan->bytes[CKIO_TAPE] < 0)
        return ckio_p_expected(r, "expected `# steps`, `# restart` and `# tape` first");
    if (!ckio_p_apply(r, &a) || !ckio_p_grow(r, &array, plan->count, &r->space, sizeof a))
        return 0;
    plan->actions = (ckio_action *)array;
    plan->actions[plan->count++] = a;
    return 1;
}

static int ckio_p_text(ckio_p_reader *r) {
    int fine = ckio_p_title(r);
    while (fine && ckio_p_line(r)) {
        if (r->text[0] != '#')
            fine = ckio_p_ends(r->text) || ckio_p_action(r);
        else if (r->text[1] == '#') /* a comment */
            continue;
        else if (r->plan->count > 0)
            fine = ckio_p_expected(r, "expected no header after the first action");
        else if (r->text[1] == '|')
            fine = ckio_p_platform(r);
        else if (r->text[1] != ':') /* not the seconds of each step, which are of no use here */
            fine = ckio_p_header(r);
    }
    if (r->plan->error)
        return 0;
    if (r->announced >= 0 && r->announced != r->plan->count)
        return ckio_p_expected(r, "expected all `# actions` until here; the file is cut off");
    if (r->plan->count == 0 || r->reversed < r->plan->steps)
        return ckio_p_illegal(r, "the plan ends before all steps are reversed", 0, 0);
    return 1;
}

int ckio_schedule_open(ckio_schedule *plan, const char *path) {
    ckio_p_reader r;
    int i;
    memset(plan, 0, sizeof *plan);
    memset(&r, 0, sizeof r);
    r.plan = plan, r.path = path;
    plan->steps = r.announced = plan->bytes[CKIO_STATE] = plan->bytes[CKIO_TAPE] = -1;
    r.memory = INT64_MAX;
    r.file = fopen(path, "r");
    if (r.file ? !ckio_p_text(&r) : !ckio_p_fail(&r, CKIO_NO_FILE, strerror(errno), 0, 0))
        ckio_schedule_close(plan);
    if (r.file)
        fclose(r.file);
    for (i = 0; i < CKIO_MOST_LEVELS; i++)
        free(r.keys[i]);
    return (int)plan->error;
}

int ckio_schedule_next(ckio_schedule *plan, ckio_action *action) {
    if (plan->next >= plan->count)
        return 0;
    *action = plan->actions[plan->next++];
    return 1;
}

void ckio_schedule_close(ckio_schedule *plan) {
    free(plan->actions);
    plan->actions = NULL;
    plan->count = 0;
}

#endif /* CKIO_SCHEDULE_IMPLEMENTATION */
