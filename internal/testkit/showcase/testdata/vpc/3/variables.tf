variable "name" {
  type        = string
  description = "Name of the VPC. It prefixes the name of every resource in it."

  validation {
    condition     = can(regex("^[a-z0-9-]{3,32}$", var.name))
    error_message = "Must be 3 to 32 characters of a–z, 0–9 and hyphen."
  }
}

variable "cidr_block" {
  type        = string
  default     = "10.0.0.0/16"
  description = "IPv4 range of the VPC, such as `10.20.0.0/16`. Subnets are cut from it in the order in which they are listed."

  validation {
    condition     = can(cidrhost(var.cidr_block, 0))
    error_message = "Must be a private range between /16 and /24."
  }
}

variable "availability_zone_count" {
  type        = number
  default     = 3
  description = "Number of availability zones to use when a group lists none."

  validation {
    condition     = var.availability_zone_count >= 2 && var.availability_zone_count <= 6
    error_message = "Must be 2 to 6."
  }
}

variable "create" {
  type        = bool
  default     = true
  description = "Whether to create anything at all."
}

variable "database_subnet_group_name" {
  type        = string
  default     = null
  description = "Name of the subnet group for databases. The group is named after the VPC if this is null."
}

variable "default_network_acl_ingress" {
  type = list(object({
    rule_no    = number
    action     = string
    protocol   = string
    from_port  = number
    to_port    = number
    cidr_block = optional(string, "0.0.0.0/0")
  }))
  default = [{
    rule_no   = 100
    action    = "allow"
    protocol  = "-1"
    from_port = 0
    to_port   = 0
  }]
  description = "Ingress rules of the default network ACL."
}

variable "dhcp_options" {
  type = object({
    domain_name         = optional(string)
    domain_name_servers = optional(list(string), ["AmazonProvidedDNS"])
    ntp_servers         = optional(list(string), [])
  })
  default     = {}
  description = "DHCP options of the VPC."
}

variable "enable_dns_hostnames" {
  type        = bool
  default     = true
  description = "Whether instances with public addresses get public DNS names."
}

variable "enable_dns_support" {
  type        = bool
  default     = true
  description = "Whether the VPC resolves DNS names."
}

variable "enable_flow_logs" {
  type        = bool
  default     = true
  description = "Whether to record flow logs."
}

variable "flow_log_destination_arn" {
  type        = string
  default     = null
  description = "ARN of the bucket or log group that flow logs go to. A log group is created if this is null."
}

variable "flow_log_retention_days" {
  type        = number
  default     = 90
  description = "Days that flow logs are kept. 0 keeps them for good."
}

variable "flow_log_traffic_type" {
  type        = string
  default     = "ALL"
  description = "Traffic to record: `ACCEPT`, `REJECT` or `ALL`."
}

variable "gateway_endpoints" {
  type        = set(string)
  default     = ["s3", "dynamodb"]
  description = "Services with a gateway endpoint in each route table."
}

variable "instance_tenancy" {
  type        = string
  default     = "default"
  description = "Tenancy of instances that are launched into the VPC."
}

variable "interface_endpoints" {
  type = map(object({
    service            = string
    subnet_ids         = list(string)
    security_group_ids = optional(list(string), [])
  }))
  default     = {}
  description = "Interface endpoints by name."
}

variable "ipam_pool_id" {
  type        = string
  default     = null
  description = "IPAM pool to allocate `cidr_block` from."
}

variable "map_public_ip_on_launch_in_public_subnet_groups" {
  type        = bool
  default     = false
  description = "Whether instances in public subnets get a public address."
}

variable "nat_gateways" {
  type        = string
  default     = "one_per_zone"
  description = "How many NAT gateways to create: `none`, `one_per_vpc` or `one_per_zone`. With `one_per_vpc`, private subnets lose internet access when the zone of the gateway fails."

  validation {
    condition     = contains(["none", "one_per_vpc", "one_per_zone"], var.nat_gateways)
    error_message = "Must be none, one_per_vpc or one_per_zone."
  }
}

variable "secondary_cidr_blocks" {
  type        = list(string)
  default     = []
  description = "Further IPv4 ranges of the VPC."
}

variable "tags" {
  type        = map(string)
  default     = {}
  nullable    = false
  description = "Tags of every resource."
}

variable "vpn_gateway_amazon_side_asn" {
  type        = number
  default     = 64512
  description = "Autonomous system number of the Amazon side of the VPN gateway."
}

variable "public_subnets" {
  type        = list(string)
  default     = []
  description = "Ranges of the public subnets, one in each availability zone."
}

variable "private_subnets" {
  type        = list(string)
  default     = []
  description = "Ranges of the private subnets, one in each availability zone."
}
