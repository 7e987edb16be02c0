package main

// widgets is a definition of a kind with all that a form can have.
const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Color, type: string, jsonPath: .spec.color}
    schema:
      openAPIV3Schema:
        type: object
        description: A Widget is something that a shop sells.
        required: [spec]
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1, maximum: 100, description: How large it is.}
              color: {type: string, enum: [red, green, blue], default: green}
              fragile: {type: boolean}
              parts: {type: array, items: {type: object, required: [name], properties: {name: {type: string, maxLength: 10}}}}
              tags: {type: object, additionalProperties: {type: string}}
`

const widgetsPath = "/apis/example.com/v1/namespaces/default/widgets"

// defineWidgets stores the definition and waits until it's served.
func (p *process) defineWidgets() {
	p.t.Helper()
	p.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgets)
	p.ask("GET", widgetsPath, "")
}
