package registry

// NameAlias is the old label of metadata.name, which Namespace has among its fields.
const NameAlias = "name"
