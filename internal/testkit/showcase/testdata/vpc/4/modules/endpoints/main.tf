variable "vpc_id" {
  type        = string
  description = "ID of the VPC."
}

variable "endpoints" {
  type = map(object({
    service            = string
    subnet_group       = string
    security_group_ids = optional(list(string), [])
  }))
  description = "Interface endpoints by name."
}

variable "private_dns_enabled" {
  type        = bool
  default     = true
  description = "Whether the public names of the services resolve to the endpoints."
}

resource "aws_vpc_endpoint" "interface" {
  for_each            = var.endpoints
  vpc_id              = var.vpc_id
  service_name        = each.value.service
  vpc_endpoint_type   = "Interface"
  private_dns_enabled = var.private_dns_enabled
}

resource "aws_security_group" "endpoints" {
  name_prefix = "endpoints-"
  vpc_id      = var.vpc_id
}

output "endpoint_ids" {
  value       = { for name, e in aws_vpc_endpoint.interface : name => e.id }
  description = "IDs of the endpoints by name."
}
