// Package etcd runs the etcd server that this process embeds, with an in-process client. By default it's the only member,
// and there's no listening port. With Options.Cluster other processes are members too, reached by one port.
//
// # What it owns
//
// One data directory and every file in it:
//
//   - the marker, which makes the directory ours and carries the lock, and pid, which names the process that has it;
//   - etcd's files under member/: the WAL, the snapshots and the database;
//   - history.json, the marks that say which revision was current when;
//   - seal.json, the checksums of the database as Close left it;
//   - spare, space that is reserved for etcd's next snapshot;
//   - of a cluster's member, cluster.json, the authority's and the member's certificates, and join-token;
//   - what its user puts there (Server.WriteFile), such as the key that signs the tokens of ServiceAccounts.
//
// # Flow
//
// Open locks the directory, has package check mend etcd's files and remove the seal, starts etcd, and has it campaign at
// once. Then a write passes through Client to the layer of room, which asks whether there's space, and on to etcd by
// function calls. A read goes to etcd directly. Close stops the keeper, then etcd, and leaves the marks and a seal.
//
// In a cluster the directory is a new cluster's, or that of the one it joins (openCluster), before etcd starts. Requests pass
// the layer of cluster first, which answers each of them in time (answers.go), and lets writes go together where there are many
// (bursts.go). The port (port.go) takes joins (join.go) and hands the other members' requests to etcd. The leader promotes
// learners (members.go).
//
// Three rules hold for the whole package:
//
//   - Only requests move etcd's revision: nothing here writes a key, apart from RaiseRevision, which a migration calls before
//     anybody uses the store.
//   - A start never makes less of the data than was acknowledged. It refuses files that can't be read whole, with the
//     file's name and what to do.
//   - A failed write ends the server. What etcd calls fatal ends the goroutine that met it, so that nothing is
//     acknowledged after it, and closes Done. The owner of the server then ends the process.
//
// # Goroutines
//
//   - etcd's own. Close ends them and waits for them.
//   - The keeper, which Open starts and Close waits for. Ten times a second it looks at the disk, and once a second at
//     history (compaction.go) and space (space.go): it compacts what is older than Options.History or more than
//     Options.HistoryBytes, and makes room when writes are refused. Every five seconds it gives the pages of the database's
//     file that were read back to the kernel (database.forget). On an idle server a look is a syscall and a few loads, and
//     nothing is written.
//   - In a cluster, one that asks whether a majority answers, one that promotes learners, one that waits for these two, the
//     one that accepts on the port, and those of the port's requests. Close ends them and waits for them.
//   - One for each other member while all are asked how they are (ask), and up to idleAtOnce while a snapshot is hastened
//     (idle). Whoever starts them waits for them.
//   - That of a burst's timer, which takes bursts.mu and waits for nothing else. Nobody waits for it: it may run for up to
//     burstWait after Close.
//   - watchStop, which waits for etcd to end by itself. Open starts it and Close waits for it.
//   - One for StartEtcd, one for the keeper's start, and one for each part of Close (see waitFor). Open and Close wait
//     for them, but for a rewrite of the database (see Server.Close). After a failure such a call may never return, so Open
//     and Close give up. Its goroutine may then outlive Close, and the directory stays locked until the process ends. An
//     etcd that starts after Open has given up is stopped by that goroutine.
//   - One for each stream by which leases are renewed (leases.go). Nobody waits for it: it ends with the stream, or when
//     etcd has ended the lease or itself.
//
// # Locks
//
// These two are held while something is waited for, so they aren't mutexes: whoever waits for one can give up.
//
//   - room.lock guards what is allocated. It's held while files are allocated and while the database is rewritten, because
//     writers that need space have to wait for the outcome. etcd's own locks are taken inside it.
//   - cluster.admitting lets joins in one by one, and guards the cluster's state meanwhile. It's held until etcd has the new
//     member.
//
// The mutexes are leaves, but for guest.mu. Nothing waits or logs while one is held.
//
//   - marks.mu guards the marks and their clock.
//   - bursts.mu guards which writes wait, and which are out.
//   - The one in ask guards what the members answer.
//   - Server.takeover guards etcd's database against being replaced by another member's. etcd's logger holds it meanwhile, which waits for who
//     opens a Snapshot just then: that takes some milliseconds, and a commit.
//   - port.mu guards whether the port is closed.
//   - That of port.refusals guards how many lines the log has about refusals.
//   - guests.mu guards the connections whose client isn't known. guest.mu, which is taken before it, guards what is known
//     of one.
//
// A writer has its bytes of room.underWay when it takes room.lock; nobody takes bytes while it holds the lock. Apart from
// guest.mu and guests.mu no other two are held together. What etcd calls with its own locks held (the logger, and the filter
// that counts writes) takes no other.
//
// # Bounds
//
//   - the database: Options.QuotaBytes
//   - history: Options.History and Options.HistoryBytes, and a part of the quota (relieveShares); the marks divide it into
//     some 64 parts (package history)
//   - the entries that etcd keeps in memory: snapshotCount and catchUpEntries
//   - the WAL on disk: maxWALFiles of segmentBytes, fewer on a small disk, and what is written in a second
//   - a request: MaxValueBytes and requestOverhead, or BulkBytes with Bulk
//   - the writes under way: roomChunk; more writes wait
//   - the connections of the port: maxPortConnections, and maxGuests for guestTimeout of those whose client isn't known
//     (guests.go); its requests: portHeaderBytes and joinBytes
//   - learners: maxLearners; the entries that are kept for members that lag: clusterCatchUp
//   - the waiting for an answer in a cluster: answerTimeout; the waiting of a write for others before: burstWait
//   - the waiting of Close after a failure: brokenStop for each part
package etcd
