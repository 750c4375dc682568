/*
 * What checkpoints and Hugging Face folders share: ranks that agree, a folder that is filled by all
 * and published by one. Private to ckpt.c, ckpt_save.c,
 * ckpt_async.c and hf_folder.c.
 */
#ifndef TRAINER_FOLDER_H
#define TRAINER_FOLDER_H

#include "trainer/archive.h"

/* -ESTALE unless FOLDER is one and the same folder on all ranks: rank 0 makes a file in it, and all
 * look for that. Collective. */
int tr_folder_same(const char *folder, const struct tr_team *team, struct err *error);

/* A number for tr_folder_name(), the same on all ranks; collective. */
uint64_t tr_folder_number(const struct tr_team *team);
/* The name PREFIX.xxxxxxxx of a folder to fill, from NUMBER; caller frees. */
char *tr_folder_name(const char *prefix, uint64_t number);

/* Make FOLDER, a name by tr_folder_name(), with the files of ARCHIVE: one rank. Unless PREFIX is
 * NULL, what was left under other names with it is removed. */
int tr_folder_make(struct tr_archive *archive, const char *prefix, const char *folder,
                   struct err *error);
/* Then write the rank's parts and sync them: all ranks, each by itself. */
int tr_folder_put(struct tr_archive *archive, const struct tr_ckpt_what *what, bool weights_only,
                  const struct tr_team *team, struct err *error);
/* Of weights in a folder of Hugging Face's, when all ranks have: those that tr_folder_put() leaves,
 * whose numbers lie between others', in rows that are read and written as a whole. */
int tr_folder_put_second(struct tr_archive *archive, const struct tr_ckpt_what *what,
                         struct err *error);
/* Fill the parts from ARCHIVE. With WEIGHTS_ONLY those of the optimizer are left alone. */
int tr_folder_get(const struct tr_archive *archive, const struct tr_ckpt_what *what,
                  bool weights_only, struct err *error);

/* FOLDER, which is made if it is absent, can be written to. */
int tr_folder_room(const char *folder, struct err *error);
int tr_folder_json(const char *folder, const char *name, const json_t *json, struct err *error);
/* model.safetensors.index.json of the first NFILES files, where they are more than one. */
int tr_folder_index(const struct tr_archive *archive, size_t nfiles, const char *folder,
                    struct err *error);
/* Give the finished folder FROM its name TO, for good; what had that name is removed afterwards. */
int tr_folder_publish(const char *from, const char *to, struct err *error);

#endif
