// Package check says whether etcd can start in a data directory with all that it has acknowledged there.
// etcd by itself trusts its files: it cuts its WAL where a record can't be read, and follows any page number
// in its database. So each start reads them here first, with more suspicion.
//
// It owns the rules for etcd's files (the WAL in member/wal, the database in member/snap/db), and the seal:
// a file with the checksums of the closed database.
//
// # Flow
//
// Directory.Open is the door. It reads the WAL to its end, compares the database with the seal, walks the
// database's tree, and compares what the two say: a committed entry may not be missing from the WAL. Then it
// mends what only a crash can have left, so that etcd has nothing to repair, and removes the seal, as etcd
// is about to write. Seal makes the next seal after etcd has stopped.
//
// # What a start does with what it finds
//
//   - A write that a crash left unfinished at the WAL's end is dropped, with a line in the program's log. It
//     was never acknowledged. Records after the hole don't matter, unless one of them says that an entry
//     in the hole was committed.
//   - A first start that was killed before anything was committed is undone.
//   - A WAL file or a database that is too short, blank, missing, of another cluster, or wrong in any byte
//     that can be checked is damaged. The error names the file, the offset and the way out. Nothing is
//     changed.
//
// # Versions
//
// What a newer program wrote is no damage: a whole WAL record of an unknown type, or a whole meta page of an unknown
// version. The error says so, and asks for that program. Unknown fields of a record are skipped, as etcd does.
// A seal of another version counts as none. The layout of the rest of the data directory has a version of
// its own, in the marker of storage/etcd.
//
// Why these are readers of our own, and which tests hold them to those of etcd and bbolt:
// docs/decisions/0002-how-etcds-files-are-checked.md.
//
// # Goroutines, locks, bounds
//
// Open has one goroutine, which compares the database with the seal beside the walk, and which it waits for. There are no locks. Files are mapped and read in place; what is allocated is a byte per page of the
// database, four per sealChunk, and at most one WAL file to blank a torn end. A record has at most maxRecordBytes.
// Sealing ends after sealTime.
package check
