package conformance

import "testing"

func TestKubectlExplain(t *testing.T) {
	k := newKubectl(t, startEphemeral(t))
	k.define()
	k.do("", "create", "-f", "testdata/details.yaml")
	k.tell(t, []step{
		{args: args("explain", "widgets.spec.size"), want: "GROUP:      example.com\nKIND:       Widget\nVERSION:    v1\n\nFIELD: size <integer>\n\n\nDESCRIPTION:\n    <empty>"},
		{args: args("explain", "details"), want: "...DESCRIPTION:\n    Detail shows what a schema can say."},
		{args: args("explain", "details"), want: "...  metadata\t<ObjectMeta>\n    Standard object's metadata."},
		{args: args("explain", "details.metadata.labels"), want: "...FIELD: labels <map[string]string>"},
		{args: args("explain", "details.metadata.ownerReferences.uid"), want: "...FIELD: uid <string>"},
		{args: args("explain", "details.spec.color"), want: "...FIELD: color <string>\nENUM:\n    red\n    blue\n\nDESCRIPTION:\n    The color."},
		{args: args("explain", "details.spec.parts.name"), want: "...FIELD: name <string>"},
		{args: args("explain", "details.spec.template.metadata"), want: "...FIELD: metadata <ObjectMeta>"},
		{args: args("explain", "details", "--recursive"), want: "...\n    parts\t<[]Object>\n      name\t<string> -required-\n      size\t<integer>\n"},
		{args: args("explain", "details", "--api-version", "example.com/v1beta1"), want: "...VERSION:    v1beta1\n"},
		{args: args("explain", "details.spec.nothing"), fails: `field "nothing" does not exist`},
		{args: args("explain", "namespaces"), want: "...DESCRIPTION:\n    Namespace provides a scope for Names."},
		{args: args("explain", "namespaces.spec.finalizers"), want: "...FIELD: finalizers <[]string>"},
		{args: args("explain", "namespaces.status.conditions.lastTransitionTime"), want: "...FIELD: lastTransitionTime <string>"},
		{args: args("explain", "crd.spec.versions"), want: "...FIELD: versions <[]CustomResourceDefinitionVersion>"},
		{args: args("explain", "crd.spec.versions.schema.openAPIV3Schema.properties"), want: "...FIELD: properties <map[string]JSONSchemaProps>"},
		{args: args("explain", "crd", "--recursive"), want: "...\n    versions\t<[]CustomResourceDefinitionVersion> -required-\n"},
		{args: args("explain", "details.spec.color", "-o", "plaintext-openapiv2"), want: "...DESCRIPTION:\n     The color."},
	})
}

// TestKubectlReadmesWidget: the README's definition and object have something to show in kubectl.
func TestKubectlReadmesWidget(t *testing.T) {
	k := newKubectl(t, startEphemeral(t))
	k.tell(t, []step{
		{args: args("create", "-f", "../testdata/crds/widgets.yaml"), want: "customresourcedefinition.apiextensions.k8s.io/widgets.example.com created"},
		{args: args("create", "-f", "../testdata/objects/widget.yaml"), want: "widget.example.com/hello created"},
		{args: args("get", "widgets"), want: "...NAME    COLOR   SIZE   AGE\nhello   red     1      "},
		{args: args("get", "widgets", "-o", "wide"), want: "...NAME    COLOR   SIZE   PHASE   AGE\nhello   red     1              "},
		{args: args("explain", "widgets"), want: "...DESCRIPTION:\n    Widget is an example"},
		{args: args("explain", "widgets.spec.size"), want: "...FIELD: size <integer>\n\n\nDESCRIPTION:\n    Its size in millimeters."},
	})
}
