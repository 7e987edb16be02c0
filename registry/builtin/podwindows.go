package builtin

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The rules for what Windows knows of containers.

// The most of what names an account of Windows.
const (
	maxCredentialSpec = 64  // KiB
	maxUserDomain     = 256 // bytes, and fewer are allowed
	maxUserName       = 104 // bytes
)

// What accounts of Windows may be called.
var (
	userControls = regexp.MustCompile(`[[:cntrl:]]+`)
	netBIOSName  = regexp.MustCompile(`^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$`)
	domainName   = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$`)
	userOfDots   = regexp.MustCompile(`^[\. ]+$`)
	userSigns    = regexp.MustCompile(`["/\\:;|=,\+\*\?<>@\[\]]`)
)

func (c *podCheck) windowsOptions(o *corev1.WindowsSecurityContextOptions, at *field.Path) {
	if o == nil {
		return
	}
	if name := o.GMSACredentialSpecName; name != nil {
		c.subdomain(at.Child("gmsaCredentialSpecName"), *name)
	}
	if spec := o.GMSACredentialSpec; spec != nil {
		at := at.Child("gmsaCredentialSpec")
		switch {
		case *spec == "":
			c.add(field.Invalid(at, *spec, "gmsaCredentialSpec cannot be an empty string"))
		case len(*spec) > maxCredentialSpec<<10:
			c.add(field.Invalid(at, *spec, fmt.Sprintf("gmsaCredentialSpec size must be under %d KiB", maxCredentialSpec)))
		}
	}
	if o.RunAsUserName != nil {
		c.windowsUser(*o.RunAsUserName, at.Child("runAsUserName"))
	}
}

// windowsUser checks the name of a user, who may have a domain: DOMAIN\USER.
func (c *podCheck) windowsUser(name string, at *field.Path) {
	wrong := func(why string) { c.add(field.Invalid(at, name, "runAsUserName"+why)) }
	switch {
	case name == "":
		wrong(" cannot be an empty string")
		return
	case userControls.MatchString(name):
		wrong(" cannot contain control characters")
		return
	case strings.Count(name, `\`) > 1:
		wrong(" cannot contain more than one backslash")
		return
	}
	domain, user, hasDomain := strings.Cut(name, `\`)
	if !hasDomain {
		domain, user = "", name
	}
	if len(domain) >= maxUserDomain {
		wrong(fmt.Sprintf("'s Domain length must be under %d characters", maxUserDomain))
	}
	if hasDomain && !netBIOSName.MatchString(domain) && !domainName.MatchString(domain) {
		wrong("'s Domain doesn't match the NetBios nor the DNS format")
	}
	switch {
	case user == "":
		wrong("'s User cannot be empty")
	case len(user) > maxUserName:
		wrong(fmt.Sprintf("'s User length must not be longer than %d characters", maxUserName))
	}
	if userOfDots.MatchString(user) {
		wrong("'s User cannot contain only periods or spaces")
	}
	if userSigns.MatchString(user) {
		wrong(`'s User cannot contain the following characters: "/\:;|=,+*?<>@[]`)
	}
}
