package discovery

import "testing"

// TestPublishedIsWhole: each entry of the archive can be read, and has all the schemas to which it refers.
func TestPublishedIsWhole(t *testing.T) {
	archive, err := openPublished()
	if err != nil {
		t.Fatal(err)
	}
	all, err := archive.read(publishedAll2)
	if err != nil || len(all.Schemas) < 500 {
		t.Fatalf("%d definitions, %v", len(all.Schemas), err)
	}
	for _, f := range archive.files.File {
		if f.Name == publishedShared {
			continue
		}
		p, err := archive.read(f.Name)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Paths)+len(p.Schemas) == 0 {
			t.Errorf("%s is empty", f.Name)
		}
		known := func(name string) {
			if p.Schemas[name] == nil && all.Schemas[name] == nil && all.Parameters[name] == nil {
				t.Errorf("%s refers to %s, which isn't there", f.Name, name)
			}
		}
		for _, path := range p.Paths {
			reach(path, known)
		}
		for _, schema := range p.Schemas {
			reach(schema, known)
		}
	}
}
