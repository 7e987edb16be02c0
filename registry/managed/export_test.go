package managed

// MetaDefinitions is metaDefinitions for tests.
var MetaDefinitions = metaDefinitions
