// Package backups has a server take snapshots of itself on schedule, into a directory of which it keeps the newest.
//
// Options say when and where. Open takes the directory, whose lock it has until Close, and removes what a killed process left there. Run
// takes the snapshots, one at a time, on its caller's goroutine: each is written into a .part, which gets its name when it's on disk and
// its checksum is right. Only files of the package's own naming are ever removed. What is kept is bounded by Options.Keep, and the disk by
// snapshot.Room.
package backups
