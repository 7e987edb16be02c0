// Package etcd runs the etcd server that this process embeds, as its only member, with an in-process
// client and no listening port.
//
// It owns one data directory and everything in it: the marker file that says whose it is and that
// holds the lock, etcd's files under member/, the history's marks and the database's seal. Open checks
// the files, removes the seal, starts etcd and has it campaign at once; Close stops it and leaves a seal.
//
// Three rules hold for the whole package. Only requests move etcd's revision: nothing here writes a key.
// A start never makes less of the data than was acknowledged: what can't be read whole is refused, with
// the file's name and what to do. And a failed write ends the server: etcd's "fatal" ends the
// goroutine that met it (so that nothing is acknowledged after it), closes Done, and leaves the end of
// the process to its owner.
//
// # Goroutines
//
// etcd's own, ended by Close; one that waits for etcd's failure; and the keeper, which Open starts and
// Close waits for. It looks ten times a second at the disk and once at all else (a syscall and a few
// loads), and writes only when something has changed:
//
//   - history: it marks which revision was current when, and compacts what is older than
//     Options.History or more than Options.HistoryBytes;
//   - space: it makes room when the disk is nearly full or the database has reached its quota, and takes
//     etcd's alarm back when there's enough again. Writes look at the disk by themselves: see room.
//
// # Bounds
//
// The database by Options.QuotaBytes, history by time and bytes, the marks by maxMarks, the log that
// etcd keeps in memory by catchUpEntries, the log on disk by snapshotCount and segmentBytes, a request by
// MaxValueBytes, the writes under way by roomChunk.
package etcd
