//! The sink's driver and its disk.

use super::*;

impl Run<'_> {
    pub(super) fn arrive(
        &mut self,
        chunk: ChunkIndex,
        piece: &Piece,
        part: &Range<Offset>,
        content: u64,
    ) {
        self.crossed += part.end.0 - part.start.0;
        let garbled = self.rng.chance(self.faults.garble);
        let content = if garbled { content ^ 2 } else { content };
        let refused = self.rng.chance(self.faults.sink);
        let full = self.rng.chance(self.faults.full);
        let Some(plan) = self.expected.get_mut(&chunk) else { return };
        let Some(expected) = plan.iter_mut().find(|e| e.piece.entry == piece.entry) else { return };
        if refused || full {
            let kind = if full { FailureKind::TargetFull } else { FailureKind::TargetRefused };
            self.sink.on_write_failed(piece.entry, Failure::new(kind, "no"));
            return;
        }
        let end = part.end.min(expected.piece.range.end);
        if part.start >= end {
            return;
        }
        let part = part.start..end;
        // Drops a duplicate of data that is already written.
        for fresh in expected.got.gaps(part.clone()).collect::<Vec<_>>() {
            self.disk.write(&expected.entry, &expected.piece, fresh, content);
        }
        expected.got.insert(part);
        self.check_chunk(chunk);
    }

    /// Answers a chunk whose pieces are all written.
    pub(super) fn check_chunk(&mut self, chunk: ChunkIndex) {
        let Some(plan) = self.expected.get(&chunk) else { return };
        if plan.iter().any(|e| !e.got.contains_range(&e.piece.range)) {
            return;
        }
        let plan = self.expected.remove(&chunk).expect("just seen");
        if plan.is_empty() {
            return;
        }
        let hashes = plan
            .iter()
            .map(|e| (e.piece.entry, self.disk.hash(&e.entry, &e.piece).expect("written")))
            .collect();
        self.answers.push(Answer::Written(chunk, hashes));
    }

    pub(super) fn do_job(&mut self) {
        match self.jobs.pop_front().expect("offered") {
            SinkAction::Examine(first, entries) => {
                let states = entries.iter().map(|entry| self.disk.examine(entry)).collect();
                self.sink.on_examined(self.now, first, states);
            }
            SinkAction::MakeDirectory(id, entry) => {
                self.disk.made = true;
                self.disk.place(&entry).target = Some(Node::Directory { entry: None });
                self.answers.push(Answer::Made(id));
            }
            SinkAction::MakeSymlink(id, entry) => {
                let EntryKind::Symlink { target } = &entry.kind else { panic!("not a link") };
                self.disk.made = true;
                self.disk.place(&entry).target = Some(Node::Symlink(target.clone()));
                self.answers.push(Answer::Made(id));
            }
            SinkAction::MakeEmpty(id, entry) => {
                self.disk.place(&entry).temporary = Some(Default::default());
                self.answers.push(Answer::Made(id));
            }
            SinkAction::Rehash(chunk, piece, entry) => {
                let hash = self.disk.hash(&entry, &piece);
                self.answers.push(Answer::Rehashed(chunk, piece.entry, hash));
            }
            SinkAction::HashOld(chunk, piece, entry) => {
                let len = piece.range.end.0 - piece.range.start.0;
                let old = self.disk.old(&entry, &piece);
                let hash = old.map(|content| digest(content, piece.file_offset, len));
                let hash = hash.filter(|_| !self.old_fault());
                self.answers.push(Answer::OldHashed(chunk, piece.entry, hash));
            }
            SinkAction::CopyOld(chunk, piece, entry) => self.copy_old(chunk, &piece, &entry),
            SinkAction::Link(plan) => {
                let linked = self.link(&plan);
                self.answers.push(Answer::Linked(plan.id, linked));
            }
            SinkAction::HashTarget(id, entry) => {
                self.answers.push(Answer::Root(id, self.disk.target_root(&entry)));
            }
            SinkAction::RewriteJournal(bytes) => self.disk.rewrite_journal(bytes),
            SinkAction::Journal(bytes) => self.disk.journal.extend_from_slice(&bytes),
            SinkAction::Sync(token) => {
                self.disk.begin_sync(token);
                self.answers.push(Answer::Synced(token));
            }
            SinkAction::Commit(batch) => {
                for (id, entry) in batch {
                    self.disk.commit(&entry);
                    self.check_committed(&entry);
                    self.answers.push(Answer::Committed(id));
                }
            }
            SinkAction::Settle(batch) => self.settle(batch),
            SinkAction::JournalSync { token, names } => {
                self.disk.begin_journal_sync(token, names);
                self.answers.push(Answer::JournalSynced(token));
            }
            SinkAction::Discard(_, entry) => self.disk.place(&entry).temporary = None,
            SinkAction::Abandon(paths) => self.disk.abandon(&paths),
            SinkAction::Delete(plan) => self.delete(&plan.keep, plan.dry_run),
            SinkAction::RemoveJournal => self.disk.remove_journal(),
            SinkAction::RemoveLock => {}
            _ => panic!("not a job"),
        }
    }

    fn link(&mut self, plan: &LinkPlan) -> Linked {
        let first = self.disk.places.get(plan.first.as_bytes());
        let Some(Node::File { contents, size, entry, inode }) =
            first.and_then(|place| place.target.clone())
        else {
            return Linked::Gone;
        };
        if Some(size) != plan.entry.size() {
            return Linked::Gone;
        }
        let fault = self.rng.chance(self.faults.link);
        let place = self.disk.place(&plan.entry);
        if matches!(place.target, Some(Node::File { inode: there, .. }) if there == inode) {
            return Linked::Same;
        }
        if !plan.makes {
            return Linked::Differs;
        }
        if fault {
            let faults = [Linked::Gone, Linked::TooMany, Linked::Impossible];
            return faults[self.rng.below(3) as usize];
        }
        place.target = Some(Node::File { contents, size, entry, inode });
        self.disk.made = true;
        self.links += 1;
        self.check_committed(&plan.entry);
        Linked::Made
    }

    /// Sometimes the old version changed since it was hashed, or is gone.
    fn copy_old(&mut self, chunk: ChunkIndex, piece: &Piece, entry: &Entry) {
        let expected = self.expected.get(&chunk).is_some_and(|plan| {
            plan.iter().any(|e| e.piece.entry == piece.entry && e.got.is_empty())
        });
        let old = self.disk.old(entry, piece).filter(|_| !self.old_fault());
        let Some(old) = old.filter(|_| expected) else {
            self.answers.push(Answer::Copied(chunk, piece.entry, None));
            return;
        };
        self.expected.remove(&chunk);
        let old = if self.old_fault() { old ^ 2 } else { old };
        self.copied += piece.range.end.0 - piece.range.start.0;
        self.disk.write(entry, piece, piece.range.clone(), old);
        let hash = self.disk.hash(entry, piece);
        self.answers.push(Answer::Copied(chunk, piece.entry, hash));
    }

    pub(super) fn delete(&mut self, keep: &packtrain_transfer::KeptPaths, dry_run: bool) {
        let gone: Vec<_> = self
            .disk
            .places
            .iter()
            .filter(|(path, place)| place.target.is_some() && !keep.contains(path))
            .map(|(path, _)| path.clone())
            .collect();
        for path in gone.iter().filter(|_| !dry_run) {
            self.disk.places.remove(path);
        }
        let gone = gone.into_iter().map(|path| (path, Ok(()))).collect();
        self.answers.push(Answer::Deleted(gone));
    }

    pub(super) fn settle(&mut self, batch: Vec<(EntryId, Entry)>) {
        self.disk.made |= !batch.is_empty();
        for (_, entry) in batch {
            match &mut self.disk.place(&entry).target {
                Some(Node::Directory { entry: meta }) => *meta = Some(entry),
                Some(Node::File { inode, .. }) => {
                    let inode = *inode;
                    self.disk.settle_file(inode, &entry);
                }
                // The mtime of a symbolic link, which this disk does not store.
                Some(Node::Symlink(_)) => {}
                other => panic!("settled what is {other:?}"),
            }
        }
    }

    pub(super) fn expect(&mut self, plan: ChunkPlan) {
        let known = self.expected.entry(plan.chunk).or_default();
        let mut keys = Vec::new();
        for (piece, entry) in plan.pieces {
            known.retain(|e| e.piece.entry != piece.entry);
            keys.push((entry.path.as_bytes().to_vec(), piece.file_offset / CHUNK.get()));
            known.push(Expected { piece, entry, got: RangeSet::new() });
        }
        for key in keys {
            self.told_hashes.remove(&key);
            self.told_digests.remove(&key);
            self.verified.remove(&key);
            self.expected_keys.push(key);
        }
    }

    pub(super) fn zero(&mut self, range: &Range<Offset>) {
        for chunk in ChunkIndex::covering(range) {
            for piece in self.source.layout().pieces(chunk) {
                let part = piece.range.start.max(range.start)..piece.range.end.min(range.end);
                let path = self.expected.get(&chunk).and_then(|plan| {
                    let expected = plan.iter().find(|e| e.piece.entry == piece.entry)?;
                    Some(expected.entry.path.clone())
                });
                if part.start < part.end
                    && let Some(path) = path
                {
                    let index = piece.file_offset / CHUNK.get();
                    let content = chunk_content(self.tree[&path].content, index);
                    self.arrive(chunk, &piece, &part, content);
                }
            }
        }
    }

    pub(super) fn unexpect(&mut self, range: &Range<Offset>) {
        for chunk in ChunkIndex::covering(range) {
            if let Some(plan) = self.expected.get_mut(&chunk) {
                plan.retain(|e| {
                    e.piece.range.start >= range.end || e.piece.range.end <= range.start
                });
            }
            self.check_chunk(chunk);
        }
    }

    pub(super) fn end_stream(&mut self, id: EntryId, size: u64) {
        let chunks: Vec<_> = self.expected.keys().copied().collect();
        let path = self.stream_path();
        for chunk in chunks {
            let plan = self.expected.get_mut(&chunk).expect("listed");
            for expected in plan.iter_mut().filter(|e| e.piece.entry == id) {
                let start = expected.piece.range.start.0 - expected.piece.file_offset;
                expected.piece.range.end = expected.piece.range.end.min(Offset(start + size));
            }
            plan.retain(|e| e.piece.range.start < e.piece.range.end);
            self.check_chunk(chunk);
        }
        if let Some(place) = self.disk.places.get_mut(&path)
            && let Some(temporary) = &mut place.temporary
        {
            temporary.size = size;
        }
    }

    pub(super) fn stream_path(&self) -> Vec<u8> {
        let stream = self.tree.values().find(|e| e.entry.kind == EntryKind::Stream);
        stream.expect("a stream").entry.path.as_bytes().to_vec()
    }

    pub(super) fn answer(&mut self) {
        let at = self.rng.below(self.answers.len() as u64) as usize;
        match self.answers.swap_remove(at) {
            Answer::Made(id) => {
                if self.rng.chance(self.faults.sink) {
                    let failure = Failure::new(FailureKind::TargetRefused, "no");
                    self.sink.on_made(id, Err(failure));
                } else {
                    self.sink.on_made(id, Ok(()));
                }
            }
            Answer::Linked(id, linked) => self.sink.on_linked(id, Ok(linked)),
            Answer::Written(chunk, hashes) => self.written(chunk, hashes),
            Answer::Rehashed(chunk, id, hash) => self.sink.on_rehashed(chunk, id, hash),
            Answer::OldHashed(chunk, id, hash) => self.sink.on_old_hashed(chunk, id, hash),
            Answer::Copied(chunk, id, hash) => {
                self.note_hashes(chunk, &[(id, hash.unwrap_or(packtrain_object::Digest([0; 32])))]);
                self.sink.on_copied(chunk, id, hash);
            }
            Answer::Root(id, root) => self.sink.on_target_root(id, root),
            Answer::Synced(token) => {
                self.disk.synced(token);
                self.sink.on_synced(token);
            }
            Answer::Committed(id) => self.sink.on_committed(id, Ok(())),
            Answer::JournalSynced(token) => {
                self.disk.journal_synced(token);
                if let Some(keys) = self.covered.remove(&token) {
                    self.durable_unreported.extend(keys);
                }
                self.sink.on_journal_synced(token);
            }
            Answer::Deleted(paths) => self.sink.on_deleted(paths),
        }
        if self.rng.chance(0.2) {
            self.sink.on_timeout(self.now);
            self.source.on_timeout(self.now);
        }
    }

    pub(super) fn written(&mut self, chunk: ChunkIndex, hashes: Vec<PieceHash>) {
        self.note_hashes(chunk, &hashes);
        self.sink.on_written(chunk, hashes);
    }

    fn note_hashes(&mut self, chunk: ChunkIndex, hashes: &[PieceHash]) {
        for (id, hash) in hashes {
            let Some(entry) = self.sink.entry(*id).cloned() else { continue };
            let Some(range) = self.source.layout().range_of(*id) else { continue };
            let at = chunk.start().0.max(range.start.0) - range.start.0;
            let len = chunk.range().end.0.min(range.end.0) - range.start.0 - at;
            let key = (entry.path.as_bytes().to_vec(), at / CHUNK.get());
            let content = chunk_content(self.tree[&entry.path].content, at / CHUNK.get());
            let good = digest(content, at, len) == *hash;
            if good {
                self.told_hashes.insert(key.clone());
                self.note_verified(key);
            }
        }
    }

    /// A file under its final name has the content of the source.
    fn check_committed(&self, entry: &Entry) {
        let source = &self.tree[&entry.path];
        if let Some(Node::File { contents, size, .. }) =
            self.disk.places.get(entry.path.as_bytes()).and_then(|place| place.target.as_ref())
        {
            let wanted = chunk_contents(source.content, *size);
            assert_eq!(wanted, *contents, "content of {:?} at its name", entry.path);
        }
    }

    fn wanted_attributes(&self, source: &SourceEntry) -> Option<Arc<Attributes>> {
        source.entry.extras.attributes.clone().filter(|_| self.options.extra.xattrs)
    }

    /// The names of each group at the source must be names of one file.
    pub fn assert_linked(&self, tree: &[SourceEntry]) {
        let inode = |entry: &Entry| {
            let place = self.disk.places.get(entry.path.as_bytes());
            match place.and_then(|place| place.target.as_ref()) {
                Some(Node::File { inode, .. }) => *inode,
                other => panic!("{:?}: {other:?}", entry.path),
            }
        };
        for source in tree {
            if let HardLink::To(first) = source.entry.extras.hard_link {
                let first = &tree[first.index()].entry;
                assert_eq!(inode(first), inode(&source.entry), "{:?}", source.entry.path);
            }
        }
    }

    /// The target tree must equal the source tree.
    pub fn assert_identical(&self) {
        for (path, source) in &self.tree {
            let place = self.disk.places.get(path.as_bytes());
            let target = place.and_then(|place| place.target.as_ref());
            match (&source.entry.kind, target) {
                (EntryKind::Directory, Some(Node::Directory { entry: Some(entry) })) => {
                    assert_eq!(entry.extras.attributes, self.wanted_attributes(source));
                    assert_eq!((entry.mtime, entry.mode), (source.entry.mtime, source.entry.mode));
                }
                (EntryKind::Symlink { target }, Some(Node::Symlink(found))) => {
                    assert_eq!(target, found);
                }
                (
                    EntryKind::File { size },
                    Some(Node::File { contents, size: found, entry, .. }),
                ) => {
                    assert_eq!(size, found, "size of {path:?}");
                    let wanted = chunk_contents(source.content, *size);
                    assert_eq!(wanted, *contents, "content of {path:?}");
                    assert_eq!((entry.mtime, entry.mode), (source.entry.mtime, source.entry.mode));
                    assert_eq!(entry.extras.attributes, self.wanted_attributes(source));
                }
                (EntryKind::Stream, Some(Node::File { contents, size, .. })) => {
                    let wanted = chunk_contents(source.content, *size);
                    assert_eq!(wanted, *contents, "content of the stream");
                }
                other => panic!("{path:?}: {other:?}"),
            }
            assert!(place.is_some_and(|p| p.temporary.is_none()), "a temporary of {path:?}");
        }
    }
}
