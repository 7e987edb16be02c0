package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

// bill writes the modules that are linked into a binary, as the binary itself says, in the form of CycloneDX.
func (r *release) bill(t target) error {
	info, err := buildinfo.ReadFile(r.binary(t))
	if err != nil {
		return err
	}
	components := []cyclonedx.Component{{
		Type: cyclonedx.ComponentTypeLibrary, BOMRef: "pkg:golang/std@" + info.GoVersion[len("go"):], Name: "std", Version: info.GoVersion[len("go"):],
		PackageURL: "pkg:golang/std@" + info.GoVersion[len("go"):],
	}}
	for _, m := range info.Deps {
		if m.Replace != nil && strings.HasPrefix(m.Replace.Path, ".") {
			continue // of this repository, which the binary is
		}
		if m.Replace != nil {
			m = m.Replace
		}
		url := fmt.Sprintf("pkg:golang/%s@%s", m.Path, m.Version)
		components = append(components, cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, BOMRef: url, Name: m.Path, Version: m.Version, PackageURL: url})
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: r.at.Format("2006-01-02T15:04:05Z"),
		Component: &cyclonedx.Component{
			Type: cyclonedx.ComponentTypeApplication, BOMRef: program, Name: program, Version: r.version,
			PackageURL: fmt.Sprintf("pkg:golang/%s@%s", info.Main.Path, r.version),
		},
	}
	bom.Components = &components
	f, err := os.Create(fmt.Sprintf("%s.cdx.json", r.binary(t)))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := cyclonedx.NewBOMEncoder(f, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return f.Close()
}
